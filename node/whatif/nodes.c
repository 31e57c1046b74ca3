/* Answers in place of the nodes: each message of slurmctld to slurmd gets the answer of a node on which all goes well. */
#include "replay.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 11, 0) || SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
#error "the layout of messages below is that of Slurm 24.11"
#endif

/* Where libslurmfull 24.11 has the fields that are used here: its headers are not public. replay_check_layout compares. */
enum {
	MESSAGE_DATA = 200,
	MESSAGE_TYPE = 212,
	MESSAGE_VERSION = 214,
	MESSAGE_SIZE = 1024, /* more than it has */
	LAUNCH_JOB_ID = 56,
	KILL_JOB_ID = 88 + offsetof(slurm_step_id_t, job_id),
	RESPONSE_SLURM_RC = 8001
};

/* What a node answers; slurmctld frees it with destroy_data_info. */
typedef struct {
	uint16_t type;
	uint32_t error;
	char *node_name;
	void *data;
} answer_t;

typedef struct {
	uint32_t return_code;
} return_code_t;

/* Functions of libslurmfull without a public header */
extern void slurm_msg_t_init(void *message);
extern const char *rpc_num2string(uint16_t type);
extern void *slurm_xcalloc(size_t count, size_t size, bool clear, bool may_fail, const char *file, int line, const char *function);
extern char *slurm_xstrdup(const char *text);
extern void destroy_data_info(void *item);

static uint32_t number_at(const void *from, size_t offset)
{
	uint32_t value;

	memcpy(&value, (const char *)from + offset, sizeof(value));
	return value;
}

static uint16_t short_at(const void *from, size_t offset)
{
	uint16_t value;

	memcpy(&value, (const char *)from + offset, sizeof(value));
	return value;
}

bool replay_check_layout(void)
{
	char message[MESSAGE_SIZE];

	memset(message, 0, sizeof(message));
	slurm_msg_t_init(message);
	return short_at(message, MESSAGE_TYPE) == NO_VAL16 && short_at(message, MESSAGE_VERSION) == NO_VAL16 &&
	       !strcmp(rpc_num2string(RESPONSE_SLURM_RC), "RESPONSE_SLURM_RC");
}

/* Takes note of the message and returns the return code of all its nodes. */
static uint32_t handle(const void *message)
{
	const char *name = rpc_num2string(short_at(message, MESSAGE_TYPE));
	void *data;

	memcpy(&data, (const char *)message + MESSAGE_DATA, sizeof(data));
	if (!strcmp(name, "REQUEST_BATCH_JOB_LAUNCH")) {
		replay_job_started(number_at(data, LAUNCH_JOB_ID));
	} else if (!strcmp(name, "REQUEST_TERMINATE_JOB") || !strcmp(name, "REQUEST_KILL_TIMELIMIT") ||
		   !strcmp(name, "REQUEST_KILL_PREEMPTED") || !strcmp(name, "REQUEST_ABORT_JOB")) {
		replay_job_killed(number_at(data, KILL_JOB_ID));
		/* slurmd's answer when nothing of the job is left: slurmctld then has the node free */
		return ESLURMD_KILL_JOB_ALREADY_COMPLETE;
	}
	return SLURM_SUCCESS;
}

static void append_answer(list_t *list, const char *node, uint32_t code)
{
	answer_t *answer = slurm_xcalloc(1, sizeof(*answer), true, false, __FILE__, __LINE__, __func__);
	return_code_t *data = slurm_xcalloc(1, sizeof(*data), true, false, __FILE__, __LINE__, __func__);

	data->return_code = code;
	answer->type = RESPONSE_SLURM_RC;
	answer->node_name = slurm_xstrdup(node);
	answer->data = data;
	slurm_list_append(list, answer);
}

static void *answer_for(hostlist_t *nodes, const void *message)
{
	list_t *list = slurm_list_create(destroy_data_info);
	uint32_t code = handle(message);
	char *node;

	while ((node = slurm_hostlist_shift(nodes))) {
		append_answer(list, node, code);
		free(node);
	}
	return list;
}

static void *answer_for_text(const char *nodes, const void *message)
{
	hostlist_t *list = slurm_hostlist_create(nodes);
	void *answers = answer_for(list, message);

	slurm_hostlist_destroy(list);
	return answers;
}

/* --- what slurmctld calls to send messages to nodes */

void *start_msg_tree(hostlist_t *nodes, void *message, int timeout)
{
	(void)timeout;
	return answer_for(nodes, message);
}

void *slurm_send_addr_recv_msgs(void *message, char *node, int timeout)
{
	(void)timeout;
	return answer_for_text(node, message);
}

void *slurm_send_recv_msgs(const char *nodes, void *message, int timeout)
{
	(void)timeout;
	return answer_for_text(nodes, message);
}

int slurm_send_only_node_msg(void *message)
{
	(void)message;
	return SLURM_SUCCESS;
}
