/*
 * The queue lies on another machine (queue.yml `remote:`): the command is run there by the user's own ssh, over one shared
 * connection. Arguments, script bodies and the submitter go by standard input, never on a command line; if the far side isn't
 * gpustow, the nvidb way (nvidb 8.5), the command line there then being all that's seen.
 *
 *   ssh's command      exec /bin/sh -c 'exec "PROGRAM" __forwarded NONCE'
 *   <- noise of rc files, skipped
 *   <- "\ngpustow:NONCE FORWARD 1\n"               the far side knows how; until it has said so, nothing is sent
 *   -> "<length>\n", then so many bytes of JSON: the header
 *   -> the bytes of each file that the header lists, in order
 *   -> 'I' for each Ctrl-C; the end of the stream is the end of the command
 *   <- the command's standard output as it is, its standard error by ssh's
 *   <- "\1gpustow:NONCE END <exit code>\n"         without it the connection was lost
 */
#pragma once

#include "base/buf.h"
#include "config/queue.h"

#define FORWARD_NONCE_LEN 17 /* 16 hex digits and a NUL */
#define FORWARD_HEADER_MAX (16 * 1024 * 1024)
#define FORWARD_FILE_MAX (64 * 1024 * 1024) /* of one file: a jobs file's own limit */
#define FORWARD_FILES_MAX 4
#define FORWARD_WORDS_MAX 1000000
#define FORWARD_WORD "__forwarded"

/* A file of this side, sent along: where the far side's command opens that name, it reads these bytes. */
struct forward_file {
	char *name; /* as it stands in argv; "-" is standard input */
	struct buf bytes;
};

/* What is sent. The same on both sides; texts are owned by whoever made it, NULL: not said. */
struct forward_header {
	int argc;
	char **argv; /* the whole command from "queue" or "job" on; argv[argc] is NULL */
	char *submitter, *home;
	int columns; /* of the terminal; 0: none */
	bool no_color, ensure; /* ensure: the keeper there is seen to first */
	bool is_utf8; /* of the terminal: what a screen's far side isn't told by ssh everywhere */
	struct forward_file *files;
	size_t n_files;
};
void forward_header_done(struct forward_header *h); /* frees all of it */

/* One JSON line, the files' sizes in it, not their bytes. -EILSEQ: a word isn't UTF-8. Pure. */
int forward_header_put(const struct forward_header *h, struct buf *ret, struct err *e);
/* The same back; files have their names, and bytes.cap room for what follows: *ret_sizes[i] bytes each. -EINVAL. Pure. */
int forward_header_parse(const char *text, size_t n, struct forward_header *ret,
	size_t ret_sizes[FORWARD_FILES_MAX], struct err *e);

/* ssh's last argument for this far side. -EINVAL: the program's path can't be said in such a line. Pure. */
int forward_line(const char *program, const char *nonce, struct buf *ret, struct err *e);
/*
 * The nvidb way: a script for the far side's sh, which comes by its standard input. It says "\ngpustow:NONCE SCRIPT\n" in place of
 * FORWARD, and END as above. Pure.
 */
int forward_script(const struct queue_remote *r, const struct forward_header *h, const char *nonce,
	struct buf *ret, struct err *e);
/* A screen's whole line. -EINVAL: a word can't be said in it. Pure. */
int forward_screen_line(const struct queue_remote *r, const struct forward_header *h,
	struct buf *ret, struct err *e);

/*
 * Reads what comes from the far side: noise until the mark, then output with END at its end. Pure: whole is what may be passed
 * on of each piece, in *out.
 */
enum forward_phase { FORWARD_NOISE, FORWARD_OPEN, FORWARD_ENDED };
struct forward_reader {
	char nonce[FORWARD_NONCE_LEN];
	enum forward_phase phase;
	bool knows; /* the far side is gpustow: FORWARD, not SCRIPT */
	int code; /* of END */
	struct buf held; /* a line that may be the mark; the beginning of what may be END */
	struct buf noise; /* its last bytes, within FORWARD_NOISE_KEPT */
};
#define FORWARD_NOISE_KEPT 1024
void forward_reader_put(struct forward_reader *r, const char *bytes, size_t n, struct buf *out);
/* The stream has ended: what was held back was output. */
void forward_reader_end(struct forward_reader *r, struct buf *out);
void forward_reader_done(struct forward_reader *r);

struct forward {
	const char *home; /* this side's: control sockets */
	bool is_tui; /* a screen: ssh gets the terminal, and the words go on its command line, for they hold no secret */
	bool *was_cut; /* of a screen: it had begun, and couldn't give the terminal back itself */
	struct forward_header *header;
};
/* The far command's exit code; 130 after Ctrl-C. Negative: ssh or the far side failed, with the sentence. */
int forward_run(const struct queue_remote *r, const struct forward *f, struct err *e);

/* The far side: says that it knows how, and reads what forward_run sent. */
int forward_receive(const char *nonce, struct forward_header *ret, struct err *e);
/*
 * Runs `command` in a child, to its end; Ctrl-C from over there becomes SIGINT for it, and the end of the stream ends it. Says
 * END with the code and returns it.
 */
int forward_serve(const char *nonce, int (*command)(void *arg), void *arg, struct err *e);
