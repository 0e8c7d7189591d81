/*
 * Any bytes as a jobs file: what comes out must be within the rules, whatever went in, and parsing its commands again must
 * give the same keys.
 */
#include "run/jobsfile.h"

#include "base/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_line(const struct jobsfile *f, size_t i)
{
	const struct jobline *l = &f->lines[i];
	const char *command = l->command;
	size_t len = l->command_len;
	char key[JOB_KEY_LEN];

	MUST(len > 0 && strlen(command) == len && len <= JOBSFILE_COMMAND_MAX);
	MUST(utf8_valid_len(command, len) == len);
	utf8_trim(&command, &len);
	MUST(len == l->command_len);
	MUST(i == 0 || f->lines[i - 1].lineno < l->lineno);
	MUST(l->vram_mib == -1 || l->vram_mib > 0);
	MUST(l->timeout_ms >= 0 && l->retries >= -1);
	MUST(!l->name || *l->name);
	job_key(l->command, l->command_len, 0, key);
	MUST(strncmp(key, l->key, 13) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct jobsfile f;

	jobsfile_parse((const char *)bytes, n, 3, &f);
	for (size_t i = 0; i < f.n; i++)
		check_line(&f, i);
	for (size_t i = 0; i < f.n_errors; i++) {
		const char *text = f.errors[i].text;
		MUST(*text && utf8_valid_len(text, strlen(text)) == strlen(text));
		MUST(i == 0 || f.errors[i - 1].lineno <= f.errors[i].lineno);
	}
	jobsfile_done(&f);
	return 0;
}
