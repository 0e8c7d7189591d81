/* Backups of the queue's database (nvidb 8.6): online, checked, rotated, never replacing; and the way back. */
#pragma once

#include "config/queue.h"
#include "store/store.h"

struct backup_made {
	char *path, *source; /* to free */
	int64_t created_ms, bytes;
	bool verified;
	char **pruned; /* n_pruned, to free */
	size_t n_pruned;
};
void backup_made_done(struct backup_made *b);
/*
 * path NULL: a generated name in `directory`; a directory: the same in it; else that file, which mustn't exist. keep 0: all; only
 * files of ours (name and content) are ever pruned. -EBUSY: another backup of this queue runs.
 */
int backup_make(struct store *s, const char *directory, const char *path, int64_t keep,
	struct backup_made *ret, struct err *e);
/* Is one due? By last_backup_at and the settings. */
bool backup_is_due(struct store *s, const struct backup_settings *b, int64_t now_ms);
/*
 * Puts a backup in the place of the database at `path`. -EBUSY: the queue there is live (somebody holds it open or its lease). What was there is
 * kept beside it under a name with the time. The restored store gets a new incarnation by itself at its first lease.
 */
int backup_restore(const char *from, const char *path, char **ret_kept, struct err *e);
