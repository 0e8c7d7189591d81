/* What can be seen of a node where the agent can't run: nvidia-smi's text, as a sample. Run by link_run_text, read here. */
#pragma once

#include "base/err.h"
#include "core/sample.h"

#include <stddef.h>

#define TEXT_SAMPLE_MAX (8 * 1024 * 1024) /* bytes of its output */
#define TEXT_SAMPLE_NONE 127 /* the command's exit code where there's no nvidia-smi */

extern const char text_sample_command[];
/* Its output as a sample; pure. -ENODEV with its own first words when there's no card to be had. */
int text_sample_parse(const char *text, size_t n, struct sample *ret, struct err *e);
