/* The parts of `gpustow doctor`: each looks at one thing and adds what it found to the list. None changes anything. */
#pragma once

#include "cli/command.h"
#include "cli/look.h"
#include "show/checklist.h"

/*
 * Driver, library, device nodes, nvidia-smi; asks the driver in a child, which may hang alone. False: there's no NVIDIA GPU
 * on this machine, so nothing of these is to be expected.
 */
bool doctor_driver(struct checklist *l);
/* What gpustow itself needs: the agent's program and root, promises, systemd's habits, namespaces. */
void doctor_machine(struct checklist *l);
/* One host over ssh, step by step; each is timed. -ENOENT and the like when config.yml doesn't have it. */
int doctor_host(const struct program *p, const char *name, int64_t limit_ms, struct checklist *l,
	struct err *e);
/* This machine's agent answers, and has figures (expects_cards: it should). */
void doctor_agent(int64_t limit_ms, bool expects_cards, struct checklist *l);
/* What's unwell about the cards of a sample. */
void doctor_sample(struct checklist *l, const struct sample *s);
