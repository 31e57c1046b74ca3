/* Submits the jobs of a trace to this slurmctld at their times, ends each when it has run for its time, and writes down what
 * happened. Reads $HEADWAY_REPLAY/jobs, writes $HEADWAY_REPLAY/events; starts when $HEADWAY_REPLAY/go exists. */
#include "replay.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELDS 16
#define CHECK_EVERY (600 * SECOND)
#define GIVE_UP (86400 * SECOND) /* of virtual time without a start or an end, after the last submission */

typedef enum { END, CANCEL, SUBMIT, CHECK } kind_t;

/* `run` of an END: which start of the job it ends, as a requeued job starts again. */
typedef struct {
	int64_t at;
	kind_t kind;
	uint32_t job, run;
} event_t;

typedef struct {
	char *fields[FIELDS];
	uint32_t slurm_id, run;
	bool running, submitted, over;
} job_t;

/* Of libslurmfull, without a public header */
extern const char *slurm_job_state_reason_string(uint32_t reason);

enum { ID, SUBMITTED_AT, UID, GID, ACCOUNT, PARTITION, QOS, LIMIT_MIN, NODES, CPUS, MEMORY_MIB, GPUS, FEATURES, BEGIN, LENGTH_S, CANCEL_AT };

static job_t *jobs;
static uint32_t count, *by_slurm_id, slurm_ids;
static event_t *heap;
static size_t events, room;
static int64_t next_event = INT64_MAX; /* time of the first of the heap */
static event_t due[64]; /* events whose time has come */
static size_t due_count;
static pthread_cond_t more_due = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int64_t last_news;
static uint32_t starts, ends;
static FILE *out;

static bool before(const event_t *a, const event_t *b)
{
	if (a->at != b->at)
		return a->at < b->at;
	if (a->kind != b->kind)
		return a->kind < b->kind;
	return a->job < b->job;
}

static void push(event_t event)
{
	size_t at = events++;

	if (events > room) {
		room = room ? 2 * room : 1024;
		if (!(heap = realloc(heap, room * sizeof(*heap))))
			abort();
	}
	for (; at && before(&event, &heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = event;
	__atomic_store_n(&next_event, heap[0].at, __ATOMIC_RELEASE);
}

static event_t pop(void)
{
	event_t first = heap[0], last = heap[--events];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < events) {
		if (child + 1 < events && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &last))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	__atomic_store_n(&next_event, events ? heap[0].at : INT64_MAX, __ATOMIC_RELEASE);
	return first;
}

static long long number(const job_t *job, int field)
{
	return atoll(job->fields[field]);
}

static char *text(const job_t *job, int field)
{
	return strcmp(job->fields[field], "-") ? job->fields[field] : NULL;
}

static job_t *find(uint32_t slurm_id)
{
	return slurm_id < slurm_ids && by_slurm_id[slurm_id] ? &jobs[by_slurm_id[slurm_id] - 1] : NULL;
}

void replay_job_started(uint32_t slurm_id)
{
	pthread_mutex_lock(&guard);
	job_t *job = find(slurm_id);
	if (job) {
		job->run++;
		job->running = true;
		starts++;
		last_news = clock_now();
		push((event_t){clock_now() + number(job, LENGTH_S) * SECOND, END, job - jobs, job->run});
	}
	pthread_mutex_unlock(&guard);
}

void replay_job_killed(uint32_t slurm_id)
{
	pthread_mutex_lock(&guard);
	job_t *job = find(slurm_id);
	if (job && job->running) {
		job->running = false;
		ends++;
		last_news = clock_now();
	}
	pthread_mutex_unlock(&guard);
}

static bool read_jobs(const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t size = 0;
	int64_t last = 0;

	while (file && getline(&line, &size, file) > 0) {
		char *rest = line, *word;
		int field = 0;

		if (!(jobs = realloc(jobs, (count + 1) * sizeof(*jobs))))
			abort();
		job_t *job = memset(&jobs[count], 0, sizeof(*jobs));
		line[strcspn(line, "\n")] = 0;
		while (field < FIELDS && (word = strsep(&rest, "\t")))
			job->fields[field++] = strdup(word);
		if (field < FIELDS)
			return false;
		push((event_t){number(job, SUBMITTED_AT) * SECOND, SUBMIT, count, 0});
		if (number(job, SUBMITTED_AT) * SECOND > last)
			last = number(job, SUBMITTED_AT) * SECOND;
		count++;
	}
	push((event_t){last + CHECK_EVERY, CHECK, 0, 0});
	return file != NULL;
}

static void submit(job_t *job)
{
	char *environment[] = {"PATH=/usr/bin:/bin"};
	char name[128];
	job_desc_msg_t wanted;
	submit_response_msg_t *answer = NULL;

	slurm_init_job_desc_msg(&wanted);
	snprintf(name, sizeof(name), "%s", job->fields[ID]);
	wanted.name = name;
	wanted.user_id = number(job, UID);
	wanted.group_id = number(job, GID);
	wanted.account = text(job, ACCOUNT);
	wanted.partition = text(job, PARTITION);
	wanted.qos = text(job, QOS);
	wanted.features = text(job, FEATURES);
	wanted.tres_per_node = text(job, GPUS);
	if (number(job, LIMIT_MIN) > 0)
		wanted.time_limit = number(job, LIMIT_MIN);
	wanted.min_nodes = wanted.max_nodes = wanted.num_tasks = number(job, NODES);
	wanted.ntasks_per_node = 1;
	wanted.min_cpus = wanted.num_tasks;
	if (number(job, CPUS) > 0) { /* else the default for its GPUs */
		wanted.cpus_per_task = number(job, CPUS);
		wanted.min_cpus = wanted.num_tasks * wanted.cpus_per_task;
	}
	if (number(job, MEMORY_MIB) > 0)
		wanted.pn_min_memory = number(job, MEMORY_MIB);
	if (number(job, BEGIN) > 0)
		wanted.begin_time = number(job, BEGIN);
	wanted.environment = environment;
	wanted.env_size = 1;
	wanted.script = "#!/bin/sh\n";
	wanted.work_dir = "/";
	wanted.std_out = "/dev/null";
	job->submitted = true;
	if (slurm_submit_batch_job(&wanted, &answer)) {
		job->over = true;
		fprintf(out, "refused\t%s\t%s\n", job->fields[ID], slurm_strerror(errno));
		return;
	}
	pthread_mutex_lock(&guard);
	job->slurm_id = answer->job_id;
	if (job->slurm_id >= slurm_ids) {
		uint32_t more = 2 * job->slurm_id + 1024;

		if (!(by_slurm_id = realloc(by_slurm_id, more * sizeof(*by_slurm_id))))
			abort();
		memset(by_slurm_id + slurm_ids, 0, (more - slurm_ids) * sizeof(*by_slurm_id));
		slurm_ids = more;
	}
	by_slurm_id[job->slurm_id] = job - jobs + 1;
	if (number(job, CANCEL_AT) > 0)
		push((event_t){number(job, CANCEL_AT) * SECOND, CANCEL, job - jobs, 0});
	last_news = clock_now();
	pthread_mutex_unlock(&guard);
	slurm_free_submit_response_response_msg(answer);
}

/* Returns how many jobs have not ended; with `report` writes them down, with Slurm's reason. */
static uint32_t jobs_left(bool report)
{
	job_info_msg_t *all = NULL;
	uint32_t left = 0;

	if (slurm_load_jobs(0, &all, SHOW_ALL))
		return 1;
	for (uint32_t i = 0; i < all->record_count; i++) {
		const slurm_job_info_t *one = &all->job_array[i];
		uint32_t state = one->job_state & JOB_STATE_BASE;

		if (state != JOB_PENDING && state != JOB_RUNNING && state != JOB_SUSPENDED)
			continue;
		left++;
		if (report)
			fprintf(out, "left\t%s\t%s\t%s\n", one->name, state == JOB_PENDING ? "waits" : "runs",
				one->state_desc ? one->state_desc : slurm_job_state_reason_string(one->state_reason));
	}
	slurm_free_job_info_msg(all);
	return left;
}

/* Ends the replay if no job is left or none will start. */
static void check(void)
{
	bool gives_up = clock_now() - last_news > GIVE_UP;

	if (jobs_left(gives_up) && !gives_up) {
		pthread_mutex_lock(&guard);
		push((event_t){clock_now() + CHECK_EVERY, CHECK, 0, 0});
		pthread_mutex_unlock(&guard);
		return;
	}
	fprintf(out, "done\t%lld\t%u\t%u\n", (long long)(clock_now() / SECOND), starts, ends);
	fclose(out);
	_exit(0);
}

static void carry_out(event_t event)
{
	job_t *job = &jobs[event.job];
	bool wanted;

	if (event.kind == SUBMIT)
		submit(job);
	else if (event.kind == CHECK)
		check();
	if (event.kind == SUBMIT || event.kind == CHECK)
		return;
	pthread_mutex_lock(&guard);
	wanted = event.kind == END ? job->running && job->run == event.run : !job->run;
	pthread_mutex_unlock(&guard);
	if (wanted && event.kind == END)
		slurm_complete_job(job->slurm_id, 0);
	else if (wanted)
		slurm_kill_job(job->slurm_id, SIGKILL, 0);
}

int64_t clock_next_event(void)
{
	return __atomic_load_n(&next_event, __ATOMIC_ACQUIRE);
}

/* Carries out due events one after the other. */
static void *send_requests(void *unused)
{
	clock_client_thread();
	pthread_mutex_lock(&guard);
	for (;;) {
		while (!due_count)
			pthread_cond_wait(&more_due, &guard);
		event_t event = due[0];
		memmove(due, due + 1, --due_count * sizeof(*due));
		pthread_mutex_unlock(&guard);
		carry_out(event);
		pthread_mutex_lock(&guard);
	}
	return unused;
}

static void *replay(void *folder)
{
	pthread_t client;
	char path[512];
	int64_t told = 0;

	snprintf(path, sizeof(path), "%s/go", (char *)folder);
	while (access(path, F_OK))
		clock_pace();
	snprintf(path, sizeof(path), "%s/events", (char *)folder); /* not earlier: slurmctld closes all files at its start */
	if (!(out = fopen(path, "w")))
		abort();
	if (!replay_check_layout()) {
		fprintf(out, "failed\tslurmctld is of a version whose messages this replay does not know\n");
		exit(3);
	}
	if (pthread_create(&client, NULL, send_requests, NULL))
		abort();
	clock_driver_thread();
	clock_freeze();
	last_news = clock_now();
	for (;;) {
		if (!clock_advance())
			continue;
		pthread_mutex_lock(&guard);
		while (events && heap[0].at <= clock_now() && due_count < sizeof(due) / sizeof(*due))
			due[due_count++] = pop();
		pthread_cond_signal(&more_due);
		pthread_mutex_unlock(&guard);
		if (clock_now() - told > 600 * SECOND) {
			told = clock_now();
			fprintf(out, "time\t%lld\t%u\t%u\n", (long long)(told / SECOND), starts, ends);
			fflush(out);
		}
	}
}

__attribute__((constructor)) static void prepare(void)
{
	const char *folder = getenv("HEADWAY_REPLAY");
	char path[512];
	pthread_t thread;

	unsetenv("LD_PRELOAD"); /* programs that slurmctld starts are not part of the replay */
	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s/jobs", folder);
	if (!read_jobs(path)) {
		fprintf(stderr, "replay: %s can't be read, or a line has too few fields\n", path);
		exit(3);
	}
	const char *start = getenv("HEADWAY_REPLAY_START");
	/* first, so that it is not one of the threads whose work the clock waits for */
	if (pthread_create(&thread, NULL, replay, strdup(folder)))
		abort();
	clock_start((start ? atoll(start) : 0) * SECOND);
}
