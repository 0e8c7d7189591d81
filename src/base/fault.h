/*
 * Named points at which the fault suite strikes: GPUSTOW_FAULT="shim.before-ended:kill" (or ":stop", ":exit", ":enospc", ":eio"),
 * optionally "#N" for the N-th passage of a process only, several joined by commas. With GPUSTOW_TEST_FAULT_DIR each entry
 * strikes once among all processes that share it: who makes the file of the point's name there strikes, and the file
 * stays as the proof. Compiled in only with -Dfault_points=true (the tests' build); else nothing is left of it.
 *
 * GPUSTOW_TEST_WALL_OFFSET names a file with the milliseconds by which the wall clock is set (base/clock.c), read at each look.
 *
 * A point is named "<who>.<where>"; tests/fault/ finds them in the sources and has each one passed.
 *
 *   agent/claim.c        claim.before-stage-lock            the stage is open, but not yet ours alone
 *                        claim.before-sync              [e] staged, nothing written yet
 *                        claim.between-sync-and-rename  [e] durable, not born
 *                        claim.after-rename             [e] born, its name not yet durable; no shim
 *   agent/claim_state.c  claim.write-record             [e] each change of `state`, by agent or shim
 *   agent/retired.c      claim.before-retire            [e] acknowledged, no line
 *                        claim.after-retired-line           line durable, claim still there
 *   agent/retired_compact.c retired.before-rename       [e] the file with shortened lines is whole, not yet under its name
 *   agent/shim.c         shim.before-lock                   forked, no right yet
 *                        shim.after-lock                    the right to start, nothing done
 *                        shim.before-started            [e] leader held at its pipe, nothing on record
 *                        shim.between-started-and-exec      on record, leader still held
 *                        shim.before-ended              [e] the job has ended, nothing on record
 *                        shim.after-ended-before-ring       on record, nobody told
 *   agent/fence.c        agent.after-fence                  a controller's fence is durable, it isn't answered yet
 *   agent/job_dir.c      jobdir.before-run-sh           [e] a queue's job has its directory, nothing in it; unit/test_queue_job.c strikes. A child of the agent passes it
 *   agent/chore_work.c   jobdir.before-read                 a child of the agent is about to read what a job says of itself
 *   agent/launch_hall.c, agent/lanes.c
 *                        jobdir.after-sync                  its directory and run.sh are durable, it has no claim
 *   agent/launch.c       agent.before-claim                 admitted, nothing on disk
 *                        agent.before-lane-start            a lane's next one is admitted, its claim not born; unit/test_lane.c and fault/test_lane_points.py strike
 *                        agent.after-lane-claim             its claim is durable, the lane doesn't know, no shim; so too
 *   agent/lane.c         agent.before-lane-stored       [e] a lane's new file isn't there yet; so too
 *   agent/lanes_word.c   agent.after-lane-stored            it's durable, nobody goes by it, and it isn't answered; so too
 *   agent/attempts.c     agent.after-claim-before-fork      born and durable, no shim
 *   agent/server.c       agent.before-retire                acknowledged, about to be retired together
 *   agent/answer.c       agent.before-ended-report          an end is known, nobody told
 *   run/run.c            run.journal                    [e] the batch is about to be written
 *                        run.before-bind                    the same, with binds in it
 *                        run.after-bind                     binds durable, no launch sent
 *                        run.after-launch                   launches handed to the socket
 *                        run.before-settle                  the batch is about to be written, with ends in it
 *                        run.after-settle                   ends durable, no ack sent
 *                        run.after-ack                      acks handed to the socket
 *   queue/controller.c   queue.after-lease                  the lease of a pass is durable, nobody was asked yet; fault/test_queue_points.py strikes all of these
 *   queue/launch.c       queue.before-bind                  the plan is made, nothing written
 *                        queue.after-bind                   binds durable, no launch sent
 *                        queue.after-launch                 launches handed to the links
 *   queue/settle.c       queue.before-settle                ends are known, not on record
 *                        queue.after-settle                 on record, no ack sent
 *                        queue.after-ack                    acks handed to the links
 *   queue/held.c         daemon.before-pass                 a pass of the daemon is about to begin; e2e/test_daemon.py and fault/test_lane_points.py strike all of these
 *                        daemon.before-news                 what nodes said between two passes is about to be settled
 *   svc/daemon.c         daemon.after-pass                  a pass is on record, nobody was told of it
 *   config/file.c        config.before-replace          [e] the new config.yml is durable beside the old one; e2e/test_config.py strikes
 *   store/store.c        store.before-commit            [e] a transaction is whole but not durable; unit/test_store_crash.c strikes
 *                        store.after-commit                 it is durable, whoever asked doesn't know yet
 *   store/backup.c       store.backup-after-copy        [e] all pages are copied, nothing is published; e2e/test_backup.py strikes
 *   store/restore.c      store.restore-before-rename        the old database has its second name only, the backup isn't in its place yet
 *   store/open.c         store.before-upgrade           [e] an older or new file has all it needs, not durable; unit/test_store_open.c
 *   store/nvidb_move.c   takeover.before-names          [e] the new file is whole, nothing is changed; unit/test_store_nvidb.c strikes
 *                        takeover.before-rename         [e] the Python's has its other name, the first one is still its own
 *                        takeover.after-rename              the place is taken, not yet durable
 *
 * [e]: what the point returns is obeyed, so ":enospc" does something there.
 */
#pragma once

#ifdef GPUSTOW_FAULT_POINTS
/* Returns 0, or -ENOSPC or -EIO where the point was told to fail. */
int fault_point(const char *name);
#else
static inline int fault_point(const char *name)
{
	(void)name;
	return 0;
}
#endif
