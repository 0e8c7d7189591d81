/* What the files of src/store/ share; nobody else includes it. store.h is the manual. */
#pragma once

#include "store/store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/types.h>

/* A prepared statement, kept as long as the store; found by the address of its text. */
struct db_kept {
	const char *sql;
	sqlite3_stmt *st;
};

/* Of a job, by the set of its columns. */
struct db_insert {
	uint64_t which;
	char *sql;
};

struct store {
	sqlite3 *db;
	char *path;
	enum store_mode mode;
	int64_t lock_wait_ms;
	int64_t (*wall_ms)(void);
	char machine_key[65]; /* this machine's */
	char queue[ID_LEN];
	bool is_elsewheres, is_on_network;
	pid_t pid;
	uint64_t dev, ino;
	/* The write transaction. */
	bool in_txn, is_broken, is_controller;
	int64_t now_ms;
	int wal_pages;
	/* lock.c */
	int lock_fd;
	bool is_locked, tstp_was_blocked;
	int n_holds; /* store_lock's: it outlives transactions */
	int64_t seen_incarnation, seen_epoch; /* of this queue, by the lock file; 0: none */
	struct store_lease
		taken; /* to be remembered there once this transaction is durable; epoch 0: none */
	/* db.c */
	struct db_kept *kept;
	size_t n_kept, cap_kept;
	/* row.c: texts made from the table of columns. */
	char *sql_job, *sql_brief, *sql_import;
	struct db_insert inserts[8];
	size_t n_inserts;
	struct buf shape, shaped; /* of the job that was put in last, and its command */
	struct buf told; /* the event of it */
};

/*
 * db.c: statements. Arguments by letters: i int64_t; o the same, -1 is NULL; z the same, 0 is NULL; b int as bool;
 * t const char *, NULL is NULL. Texts have to live until the statement is done with.
 */
int db_error(
	struct store *s, int rc, struct err *e); /* a code of SQLite as -errno and a sentence */
int db_errno(int rc);
/* The first row is there: 1, and *ret_st has to be given to db_next or db_done; none: 0. sql must be a kept text. */
int db_ask(struct store *s, sqlite3_stmt **ret_st, struct err *e, const char *sql, const char *args,
	...);
int db_next(struct store *s, sqlite3_stmt *st,
	struct err *e); /* 1, or 0 and it's done, or an error and it's done */
void db_done(sqlite3_stmt *st);
/* Statement without rows: how many rows changed (>= 0), or an error. */
int db_run(struct store *s, struct err *e, const char *sql, const char *args, ...);
int db_int(struct store *s, int64_t *ret, struct err *e, const char *sql, const char *args,
	...); /* 1, 0 no row or NULL */
sqlite3_stmt *db_kept(struct store *s, const char *sql, struct err *e);
void db_forget(struct store *s); /* finalizes all */
int db_exec(struct store *s, const char *sql, struct err *e);
char *db_text(sqlite3_stmt *st, int col); /* NULL for NULL; the caller's */
int64_t db_i64(sqlite3_stmt *st, int col, int64_t null);
/* One snapshot for several questions; inside a write transaction nothing happens. */
int db_read_begin(struct store *s, bool *ret_mine, struct err *e);
void db_read_end(struct store *s, bool mine);
#define DB_I64(v) ((int64_t)(v))

/* lock.c */
int lock_take(struct store *s, int64_t wait_ms, struct err *e);
void lock_drop(struct store *s);
/* Remembers in the lock file which epoch this queue has come to. Under the lock. */
void lock_witness(struct store *s, int64_t incarnation, int64_t epoch);

/*
 * wal.c: around the connecting. Afterwards the log's name is durable if it's there, and no commit of this process syncs the
 * directory for it any more.
 */
uint64_t wal_before(const struct store *s);
int wal_after(const struct store *s, uint64_t before, struct err *e);

/* file.c: what lies at a path, found without touching it. */
enum file_kind { FILE_NEW, FILE_OURS, FILE_NVIDB, FILE_STRANGE };
int file_look(const char *path, enum file_kind *ret, bool *ret_wal, struct err *e);
bool file_is_on_network(const char *path);
/* "file:<path>?immutable=1", to free: SQLite then reads the one file and looks for no others. */
char *file_immutable_uri(const char *path);
int file_identity(const char *path, uint64_t *ret_dev, uint64_t *ret_ino);
bool file_is_same(const char *a, const char *b); /* both are there and one file */
/*
 * Which machine a database belongs to, read past locks and journals: it's written once, when the file is made. "" when it
 * can't be read.
 */
void file_machine_key(const char *path, char ret[static 65]);
/*
 * Who else has the database open: by its log's shared memory; where it has none (on a network file system), a process of this
 * account on this machine, by /proc. 0: nobody.
 */
pid_t file_user(const char *path);
int file_sync_dir(const char *path, struct err *e); /* of the directory that `path` lies in */
void file_remove_beside(const char *path); /* log, shared memory, journal, lock */
void file_remove_whole(const char *path); /* and the file */
/* All of an open store in the one file, which then needs no log. nvidb_move.c */
int file_close_whole(struct store *s, struct err *e);

/* schema.c */
struct schema_step {
	const char *sql;
};
extern const struct schema_step schema_steps[STORE_VERSION];
/* From version `from` to n, in the transaction that the caller holds. */
int schema_apply(struct store *s, const struct schema_step *steps, int from, int n, struct err *e);
int schema_version(struct store *s, int *ret, struct err *e);

/* open.c */
int store_connect(struct store *s, int flags, struct err *e);
void store_disconnect(struct store *s);

/* store.c */
#define STORE_READ_WAIT_MS \
	5000 /* a reader, for a writer without a log and for recovery after a crash */
int store_need_txn(const struct store *s, struct err *e);
int store_move_on(struct store *s, struct err *e); /* a new incarnation, inside a transaction */
int meta_put(struct store *s, const char *key, const char *value, struct err *e);
int meta_put_int(struct store *s, const char *key, int64_t value, struct err *e);

/* row.c */
void row_init(struct store *s);
void row_done(struct store *s);
/* "SELECT ... FROM jobs j [INDEXED BY index] LEFT JOIN attempts a ..."; to_place: for row_read_to_place */
void row_put_select(struct buf *b, size_t command_max, bool to_place, const char *index);
void row_read(sqlite3_stmt *st, struct job *ret);
void row_read_to_place(sqlite3_stmt *st, struct job *ret);
int row_read_needs(struct store *s, struct job *j, struct err *e);
/* What a change has to know: all but the needs, the command cut. -ENOENT with a sentence. */
int row_brief(struct store *s, int64_t id, struct job *ret, struct err *e);
int row_check(const struct job *j, struct err *e);
int row_insert(struct store *s, const struct job *j, bool all, int64_t *ret_id, struct err *e);
void row_put_cards(struct buf *b, const struct job_card *cards, size_t n);
void row_read_bind(sqlite3_stmt *st, int col,
	struct job_bind *ret); /* token, node, root_id, boot_id, machine_key, cards */
/* A copy of at most max bytes, cut between characters; NULL for NULL. */
char *text_cut(const char *s, size_t max);
int text_check_json(const char *what, const char *json, char kind,
	struct err *e); /* kind 'o', 'a', '*'; NULL is fine */

/* news.c */
int news_event(struct store *s, const struct job_rule *r, int64_t job, const char *node,
	const char *message, const char *data, struct err *e);
int news_alert(struct store *s, const struct job_rule *r, int64_t job, const char *node,
	const char *title, const char *detail, struct err *e);

/* learned.c: what the end of an attempt of j tells about its command; in the transaction that settles it. */
int learn(struct store *s, const struct job *j, const struct store_end *end, struct err *e);
int learned_trim(struct store *s, struct err *e);

/* lane.c, lane_order.c. j: as row_brief has it; a job of no lane is passed over. */
int lane_changed(struct store *s, const struct job *j, struct err *e); /* generation + 1 */
/* Its lane is there, and it gets the place at the end; for a submit. */
int lane_enter(struct store *s, struct job *row, struct err *e);
int lane_pin(struct store *s, int64_t id, struct err *e); /* it may run on its lane's node only */
/* To the end, or before the first of the lane that needs it: a retry, a requeue. */
int lane_again(struct store *s, const struct job *j, struct err *e);
/* It isn't bound any more: where it was to go, it goes now. */
int lane_leave(struct store *s, int64_t id, struct err *e);
int lane_forget_next(struct store *s, int64_t id, struct err *e);

/*
 * nvidb_file.c: a Python nvidb's database, opened so that neither it nor anything beside it is touched: as it is when there's
 * nothing but the file, else as a copy with its log in a directory of our own.
 */
struct nvidb_stamp {
	bool is_there;
	uint64_t dev, ino;
	int64_t size, mtime_ns;
};
#define NVIDB_FILES 3 /* the file, its log, its journal */
struct nvidb_source {
	sqlite3 *db;
	char *path, *copy; /* copy: the directory, NULL when there's none */
	struct nvidb_stamp stamps[NVIDB_FILES];
};
/* -EBUSY: a process has it open, named. -EMEDIUMTYPE: it isn't one. -ENOENT. */
int nvidb_open(const char *path, struct nvidb_source *ret, struct err *e);
/* -EBUSY: it was written to since it was opened, so that what was read may be half. */
int nvidb_is_unchanged(const struct nvidb_source *src, struct err *e);
void nvidb_close(struct nvidb_source *src);

/*
 * node.c, when a lease is taken: what is remembered of silent nodes counts by the wall clock, over passes that are each a
 * process of their own. If that clock was set since the last lease of this boot, those moments go with it: a step of an hour
 * isn't an hour of silence.
 */
int node_follow_clock(struct store *s, const char *boot_id, struct err *e);

/*
 * backup.c: all pages of src into the empty file `to`, made one without a log, with the lease free; checked, durable. s: what
 * src belongs to, for its locks; NULL: nobody writes there.
 */
struct backup_facts {
	int64_t now_ms; /* its last_backup_at; 0: as it was */
	const char *machine_key; /* whose it is; NULL: as it was */
};
int backup_copy(
	struct store *s, sqlite3 *src, const char *to, const struct backup_facts *f, struct err *e);

/* submit.c */
int needs_put(struct store *s, int64_t job, bool any, const int64_t *ids, size_t n, struct err *e);
/* A job, and its rule for `step` in this transaction; the job is to be freed whenever 0 is returned. */
int change_begin(struct store *s, int64_t id, enum job_step step, struct job *ret,
	const struct job_rule **ret_rule, struct err *e);
