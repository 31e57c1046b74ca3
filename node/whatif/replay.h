/* The parts of the preload library with which headway runs slurmctld in virtual time: clock.c owns time and waiting, nodes.c
 * answers for the nodes, replay.c submits and ends the jobs. */
#ifndef HEADWAY_REPLAY_H
#define HEADWAY_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#define SECOND 1000000000LL

/* clock.c. Times are nanoseconds since 1970 of the virtual clock. */
int64_t clock_now(void);
void clock_start(int64_t at);      /* at the pace of real time from here */
void clock_pace(void);             /* one step at the pace of real time */
void clock_freeze(void);           /* from now on time moves only by clock_advance */
bool clock_advance(void);          /* waits until all threads wait, then goes to the end of the earliest wait, or to the next
                                      event, if that is earlier; returns whether the clock is at the next event */
void clock_driver_thread(void);    /* the calling thread drives the clock and is not waited for */
void clock_client_thread(void);    /* the calling thread sends requests: its waits for answers have no limit */

/* nodes.c */
bool replay_check_layout(void); /* whether messages have the layout that nodes.c reads */

/* replay.c */
int64_t clock_next_event(void); /* may be called with any lock held */

/* replay.c, called by nodes.c in slurmctld's threads */
void replay_job_started(uint32_t job_id);
void replay_job_killed(uint32_t job_id);

#endif
