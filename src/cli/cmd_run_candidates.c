/*
 * Job numbers for shell completion, from the journal of the log directory the user has typed so far. It's called at every
 * Tab: it writes nothing, locks nothing, and says nothing when there's no such directory.
 */
#include "cli/cmd_run_options.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "run/journal.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { CANDIDATES_MAX = 1000, DESCRIPTION_MAX = 60 };

static void put_candidate(const struct job_record *r, struct buf *out)
{
	const char *command = r->command ? r->command : "";

	buf_printf(out, "%llu\t%s: ", (unsigned long long)r->no, job_status_name(r->status));
	text_put_clean(out, command, utf8_valid_len(command, strnlen(command, DESCRIPTION_MAX)));
	buf_putc(out, '\n');
}

void cmd_run_candidates(const struct program *p, const void *opts, struct buf *out)
{
	const struct run_control_options *o = opts;
	CLEANUP_CLOSE int fd = open(o->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct journal *j = NULL;
	size_t n, shown = 0;

	if (fd < 0 || journal_load(fd, &j, NULL) < 0)
		return;
	n = journal_count(j);
	/* The latest are the likeliest. */
	while (n > 0 && shown < CANDIDATES_MAX) {
		const struct job_record *r = journal_at(j, --n);

		if (r->no) {
			put_candidate(r, out);
			shown++;
		}
	}
	journal_free(j);
}
