/* What both fake libraries begin each call with: the log of calls, and the scenario's rules. */
#include "fake.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void write_log(const char *call, int card)
{
	const char *path = getenv("GPUSTOW_FAKE_NVML_LOG");
	char line[96];
	int fd, n;

	if (path == NULL || (fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0)
		return;
	n = card < 0 ? snprintf(line, sizeof(line), "%s\n", call)
		     : snprintf(line, sizeof(line), "%s %d\n", call, card);
	if (write(fd, line, (size_t)n) != n) {
		fprintf(stderr, "fake: %s: cannot write the log\n", call);
		abort();
	}
	close(fd);
}

static bool is_about(const struct fake_rule *r, const char *call, int card, bool is_instance)
{
	int64_t now = fake_now_ms();

	/* "*" is every call of NVML's. */
	if (strcmp(r->call, call) != 0 &&
		(strcmp(r->call, "*") != 0 || strncmp(call, "nvml", 4) != 0))
		return false;
	return now >= r->after && now < r->until && (r->card < 0 || r->card == card) &&
	       !(r->is_parent_only && is_instance);
}

int fake_rules(const char *call, int card, bool is_instance)
{
	struct fake_scenario *s = fake_scenario();

	write_log(call, card);
	for (int i = 0; i < s->n_rules; i++) {
		const struct fake_rule *r = &s->rules[i];

		if (!is_about(r, call, card, is_instance))
			continue;
		if (r->act == FAKE_ERR)
			return (int)r->value;
		if (r->act == FAKE_CRASH) {
			/* A sanitizer would write a report. */
			signal(SIGSEGV, SIG_DFL);
			raise(SIGSEGV);
		}
		if (r->act == FAKE_HANG)
			for (;;)
				pause();
		nanosleep(&(struct timespec){r->value / 1000, r->value % 1000 * 1000000}, NULL);
	}
	return 0;
}
