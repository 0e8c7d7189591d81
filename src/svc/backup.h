/* Backups of the queue's database (nvidb 8.6): online, checked, rotated, never replacing; and the way back. */
#pragma once

#include "config/queue.h"
#include "store/store.h"

#define BACKUP_LEASE_MS \
	300000 /* how long a backup may take, and how long a failed one isn't tried again by itself */
#define BACKUP_NAME_MAX 64

struct backup_made {
	char *path, *source; /* to free */
	int64_t created_ms, bytes;
	bool verified;
	char **pruned; /* n_pruned, to free */
	size_t n_pruned;
};
void backup_made_done(struct backup_made *b);
/*
 * path NULL: a generated name in `directory`; a directory: the same in it; else that file, which mustn't exist. keep 0: all;
 * only files of ours (by name, application id and this queue's uuid) in the backup's directory are ever pruned, the oldest
 * first. The directory is made when missing. -EBUSY: another backup of this queue runs. A store that's another machine's can
 * be backed up, but won't remember that it was. Writers go on meanwhile; this returns when all is done (seconds for a big queue).
 */
int backup_make(struct store *s, const char *directory, const char *path, int64_t keep,
	struct backup_made *ret, struct err *e);
/* Is one due? By last_backup_at and the settings; not within BACKUP_LEASE_MS of one that failed or runs. */
bool backup_is_due(struct store *s, const struct backup_settings *b, int64_t now_ms);
/* Where the settings put them: `directory`, or "<home>/backups"; to free. */
char *backup_directory(const struct backup_settings *b, const char *home);
/* Wall clock ms; 0: never. */
int64_t backup_last_ms(struct store *s);
/*
 * Puts a backup in the place of the database at `path`. -EBUSY: the queue there is live (somebody holds it open or its
 * lease). What was there is kept beside it under a name with the time. The restored store belongs to this machine and has a new
 * incarnation: nothing starts from it before every node has been observed. Not for a store that this process has open.
 */
int backup_restore(const char *from, const char *path, char **ret_kept, struct err *e);

/* ---- names; pure ---- */

/* "queue-20260102T030405.678000Z.db", with "-2" before the end for the second of that moment. */
void backup_name(int64_t now_ms, int nth, char ret[BACKUP_NAME_MAX]);
/* Is it one? *ret_order tells earlier from later. */
struct backup_order {
	char stamp[24];
	int nth;
};
bool backup_name_parse(const char *name, struct backup_order *ret);
