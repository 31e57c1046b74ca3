/* A virtual clock for slurmctld. Time stands still while any of its threads works. When all of them wait, the thread that
 * drives the replay moves time to the end of the earliest wait. */
#define _GNU_SOURCE
#include "replay.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FOREVER INT64_MAX
#define STUCK_MS 300 /* threads that sleep this long without a known wait hold each other's locks */

/* A thread that waits: for a condition, for the end of a thread, for file descriptors, or only for time. */
typedef struct wait {
	struct wait *next;
	const void *subject; /* address of the condition or thread; NULL for time alone */
	struct pollfd *fds;
	nfds_t count;
	int64_t deadline;
	bool asleep, fired, timed_out;
	sem_t wake;
} wait_t;

typedef struct thread {
	struct thread *next;
	pthread_t id;
	void *(*start)(void *);
	void *argument;
	bool ended, detached;
} thread_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wait_t *waits; /* in the order of their beginning */
static thread_t *threads;
static int running = 1; /* threads that do not wait; the first is main's */
static int64_t now;     /* when frozen */
static int64_t offset;  /* virtual minus real time, before that */
static bool started, frozen;
static sem_t idle; /* posted when no thread is running any more */
static __thread bool drives, client;
static __thread wait_t own;
static __thread bool own_is_ready;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (!found)
		abort();
	return found;
}

static int64_t real_now(void)
{
	struct timespec at;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &at); /* not through this library */
	return at.tv_sec * SECOND + at.tv_nsec;
}

static int64_t time_now(void)
{
	return frozen ? __atomic_load_n(&now, __ATOMIC_RELAXED) : real_now() + offset;
}

int64_t clock_now(void)
{
	return time_now();
}

/* --- waiting. The caller holds `lock`. */

static void remove_wait(wait_t *gone)
{
	for (wait_t **at = &waits; *at; at = &(*at)->next) {
		if (*at == gone) {
			*at = gone->next;
			return;
		}
	}
}

/* Ends a wait. The woken thread counts as running from here, before the kernel lets it run. */
static void fire(wait_t *one, bool timed_out)
{
	remove_wait(one);
	one->fired = true;
	one->timed_out = timed_out;
	if (one->asleep) {
		running++;
		sem_post(&one->wake);
	}
}

/* Returns whether a thread that waits for file descriptors has some that are ready: it will run. */
static bool input_is_ready(void)
{
	for (wait_t *one = waits; one; one = one->next) {
		struct pollfd copy[8];
		nfds_t count = one->count < 8 ? one->count : 8;

		if (!one->fds)
			continue;
		memcpy(copy, one->fds, count * sizeof(*copy));
		if (REAL(poll)(copy, count, 0) > 0)
			return true;
	}
	return false;
}

/* Fires all waits that end by `at`. */
static void fire_due(int64_t at)
{
	for (wait_t *one = waits, *next; one; one = next) {
		next = one->next;
		if (one->deadline <= at)
			fire(one, true);
	}
}

/* Returns the end of the earliest wait. */
static int64_t next_deadline(void)
{
	int64_t earliest = FOREVER;

	for (wait_t *one = waits; one; one = one->next)
		if (one->deadline < earliest)
			earliest = one->deadline;
	return earliest;
}

static void go_to(int64_t at)
{
	if (at > now)
		__atomic_store_n(&now, at, __ATOMIC_RELAXED);
	fire_due(now);
}

/* The calling thread stops working. If it was the last one, it moves time itself, because a switch to the driver's thread would
 * cost more than all else; the driver is woken only for its own events. */
static void stop_running(void)
{
	if (--running > 0 || !frozen)
		return;
	int64_t next = next_deadline();
	if (next < clock_next_event() && !input_is_ready())
		go_to(next);
	else
		sem_post(&idle);
}

static wait_t *begin_wait(const void *subject, int64_t deadline)
{
	wait_t **last = &waits;

	if (!own_is_ready) {
		sem_init(&own.wake, 0, 0);
		own_is_ready = true;
	}
	own.subject = subject;
	own.deadline = deadline;
	own.fds = NULL;
	own.count = 0;
	own.asleep = own.fired = own.timed_out = false;
	own.next = NULL;
	while (*last)
		last = &(*last)->next;
	*last = &own;
	return &own;
}

/* Sleeps until the wait is fired, without `lock`. Returns whether its time ended. */
static bool sleep_until_fired(wait_t *one)
{
	pthread_mutex_lock(&lock);
	if (!one->fired) {
		one->asleep = true;
		stop_running();
		pthread_mutex_unlock(&lock);
		while (sem_wait(&one->wake))
			;
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return one->timed_out;
}

static void wait_for_time(int64_t length)
{
	pthread_mutex_lock(&lock);
	wait_t *one = begin_wait(NULL, time_now() + (length > 0 ? length : 0));
	pthread_mutex_unlock(&lock);
	sleep_until_fired(one);
}

static int wait_for_condition(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline)
{
	pthread_mutex_lock(&lock);
	wait_t *one = begin_wait(condition, deadline);
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(mutex);
	bool timed_out = sleep_until_fired(one);
	pthread_mutex_lock(mutex);
	return timed_out ? ETIMEDOUT : 0;
}

static void wake(const void *subject, bool all)
{
	pthread_mutex_lock(&lock);
	for (wait_t *one = waits, *next; one; one = next) {
		next = one->next;
		if (one->subject != subject)
			continue;
		fire(one, false);
		if (!all)
			break;
	}
	pthread_mutex_unlock(&lock);
}

/* --- driving the clock */

void clock_driver_thread(void)
{
	drives = true;
}

void clock_client_thread(void)
{
	client = true;
}

void clock_start(int64_t at)
{
	sem_init(&idle, 0, 0);
	offset = at - real_now();
	started = true;
}

void clock_pace(void)
{
	struct timespec step = {0, 2000000};

	REAL(nanosleep)(&step, NULL);
	pthread_mutex_lock(&lock);
	fire_due(time_now());
	pthread_mutex_unlock(&lock);
}

void clock_freeze(void)
{
	pthread_mutex_lock(&lock);
	now = time_now();
	frozen = true;
	pthread_mutex_unlock(&lock);
}

/* Returns whether the kernel has all other threads asleep. Threads that wait for a lock count as running here, also if its
 * holder sleeps. */
static bool all_asleep(void)
{
	DIR *folder = opendir("/proc/self/task");
	pid_t self = syscall(SYS_gettid);
	struct dirent *entry;
	bool asleep = folder != NULL;

	while (asleep && (entry = readdir(folder))) {
		char path[300], line[512], *state;
		FILE *file;

		if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == self)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		if (!(file = fopen(path, "r")))
			continue;
		state = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
		asleep = !state || state[2] == 'S';
		fclose(file);
	}
	if (folder)
		closedir(folder);
	return asleep;
}

/* Returns with `lock` held when no thread works. */
static void wait_for_idle(void)
{
	int64_t since = real_now();

	for (;;) {
		pthread_mutex_lock(&lock);
		if (running == 0 && !input_is_ready())
			return;
		bool busy = running > 0;
		pthread_mutex_unlock(&lock);
		if (busy) {
			struct timespec limit;
			int64_t end = real_now() + 20000000;

			limit.tv_sec = end / SECOND;
			limit.tv_nsec = end % SECOND;
			REAL(sem_timedwait)(&idle, &limit);
		} else {
			sched_yield();
		}
		if (real_now() - since > STUCK_MS * 1000000LL) {
			if (all_asleep()) {
				pthread_mutex_lock(&lock);
				return;
			}
			since = real_now(); /* a long pass of the scheduler: look again later */
		}
	}
}

bool clock_advance(void)
{
	wait_for_idle();
	int64_t next = next_deadline(), event = clock_next_event();
	go_to(event <= next ? event : next);
	pthread_mutex_unlock(&lock);
	return event <= next;
}

/* --- what slurmctld, its plugins and libslurmfull call */

static int64_t of(const struct timespec *at)
{
	return at->tv_sec * SECOND + at->tv_nsec;
}

time_t time(time_t *result)
{
	time_t at = (started ? time_now() : real_now()) / SECOND;
	if (result)
		*result = at;
	return at;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	int64_t value = started ? time_now() : real_now();
	(void)zone;
	at->tv_sec = value / SECOND;
	at->tv_usec = value % SECOND / 1000;
	return 0;
}

int clock_gettime(clockid_t which, struct timespec *at)
{
	if (!started || drives || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE && which != CLOCK_MONOTONIC))
		return syscall(SYS_clock_gettime, which, at);
	int64_t value = time_now();
	at->tv_sec = value / SECOND;
	at->tv_nsec = value % SECOND;
	return 0;
}

unsigned sleep(unsigned seconds)
{
	if (started && !drives)
		wait_for_time(seconds * SECOND);
	else
		REAL(sleep)(seconds);
	return 0;
}

int usleep(useconds_t length)
{
	if (!started || drives)
		return REAL(usleep)(length);
	wait_for_time(length * 1000LL);
	return 0;
}

int nanosleep(const struct timespec *length, struct timespec *left)
{
	if (!started || drives)
		return REAL(nanosleep)(length, left);
	wait_for_time(of(length));
	return 0;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	return started ? wait_for_condition(condition, mutex, FOREVER) : REAL(pthread_cond_wait)(condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *at)
{
	return started ? wait_for_condition(condition, mutex, of(at)) : REAL(pthread_cond_timedwait)(condition, mutex, at);
}

int pthread_cond_signal(pthread_cond_t *condition)
{
	if (!started)
		return REAL(pthread_cond_signal)(condition);
	wake(condition, false);
	return 0;
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
	if (!started)
		return REAL(pthread_cond_broadcast)(condition);
	wake(condition, true);
	return 0;
}

/* Waits without a limit are those of servers for requests. Waits with one are for the answer of another program: time stands
 * still meanwhile. Not so for the answers that the replay awaits: slurmctld may sleep before it gives them. */
static int wait_for_input(struct pollfd *fds, nfds_t count)
{
	pthread_mutex_lock(&lock);
	wait_t *one = begin_wait(NULL, FOREVER);
	one->fds = fds;
	one->count = count;
	stop_running();
	pthread_mutex_unlock(&lock);
	int found = REAL(poll)(fds, count, -1);
	int error = errno;
	pthread_mutex_lock(&lock);
	remove_wait(one);
	running++;
	pthread_mutex_unlock(&lock);
	errno = error;
	return found;
}

int poll(struct pollfd *fds, nfds_t count, int limit_ms)
{
	if (!started || drives || (limit_ms >= 0 && !client))
		return REAL(poll)(fds, count, limit_ms);
	return wait_for_input(fds, count);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int limit_ms)
{
	struct pollfd input = {.fd = epoll, .events = POLLIN};

	if (!started || drives || limit_ms >= 0)
		return REAL(epoll_wait)(epoll, events, most, limit_ms);
	int found = wait_for_input(&input, 1);
	return found < 0 ? found : REAL(epoll_wait)(epoll, events, most, 0);
}

/* --- threads: one counts as running from its creation to its end */

static void forget(thread_t *gone)
{
	for (thread_t **at = &threads; *at; at = &(*at)->next) {
		if (*at == gone) {
			*at = gone->next;
			break;
		}
	}
	free(gone);
}

static void end_thread(void *argument)
{
	thread_t *thread = argument;

	pthread_mutex_lock(&lock);
	thread->ended = true;
	for (wait_t *one = waits, *next; one; one = next) {
		next = one->next;
		if (one->subject == thread)
			fire(one, false);
	}
	if (thread->detached)
		forget(thread);
	stop_running();
	pthread_mutex_unlock(&lock);
}

static void *run_thread(void *argument)
{
	thread_t *thread = argument;
	void *result;

	pthread_cleanup_push(end_thread, thread);
	result = thread->start(thread->argument);
	pthread_cleanup_pop(1);
	return result;
}

int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
	int state = PTHREAD_CREATE_JOINABLE;

	if (!started || drives)
		return REAL(pthread_create)(id, attributes, start, argument);
	thread_t *thread = calloc(1, sizeof(*thread));
	if (!thread)
		return EAGAIN;
	if (attributes)
		pthread_attr_getdetachstate(attributes, &state);
	thread->start = start;
	thread->argument = argument;
	thread->detached = state == PTHREAD_CREATE_DETACHED;
	pthread_mutex_lock(&lock);
	int error = REAL(pthread_create)(&thread->id, attributes, run_thread, thread);
	if (error) {
		free(thread);
	} else {
		*id = thread->id;
		thread->next = threads;
		threads = thread;
		running++;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

int pthread_join(pthread_t id, void **result)
{
	thread_t *thread = NULL;

	pthread_mutex_lock(&lock);
	if (started)
		for (thread = threads; thread && (thread->detached || !pthread_equal(thread->id, id)); thread = thread->next)
			;
	if (thread && !thread->ended) {
		wait_t *one = begin_wait(thread, FOREVER);
		pthread_mutex_unlock(&lock);
		sleep_until_fired(one);
		pthread_mutex_lock(&lock);
	}
	if (thread)
		forget(thread);
	pthread_mutex_unlock(&lock);
	return REAL(pthread_join)(id, result);
}

/* A child of slurmctld has none of its threads, and runs a program of its own in real time. */
static void in_child(void)
{
	started = false;
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void prepare(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
