#include "agent/agent.h"

#include <stdlib.h>

#include "agent/agent_internal.h"
#include "base/alloc.h"
#include "base/id.h"

void agent_id(const char *prefix, char out[AGENT_ID_SIZE])
{
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char bytes[64];
    char text[21];
    size_t made = 0;

    while (made < 20) {
        random_bytes(bytes, sizeof(bytes));
        /* 252 = 7 * 36: what is above would make some characters more likely. */
        for (size_t i = 0; i < sizeof(bytes) && made < 20; i++)
            if (bytes[i] < 252)
                text[made++] = alphabet[bytes[i] % 36];
    }
    text[made] = '\0';
    (void)snprintf(out, AGENT_ID_SIZE, "%s%s", prefix, text);
}

bool agent_is_operator(const struct agents *agents, struct str team_id)
{
    const char *team = agents->config.operator_team;

    return !team || str_is(team_id, team);
}

bool agent_public_only(const struct agents *agents, struct str team_id)
{
    return !agents->config.settings->private_urls && !agent_is_operator(agents, team_id);
}

int agents_open(const struct agents_config *config, struct agents **out, struct error *err)
{
    struct agents *agents = xcalloc(1, sizeof(*agents));

    agents->config = *config;
    (void)pthread_rwlock_init(&agents->backends_lock, NULL);
    agent_runs_open(agents);
    if (agent_secrets_open(agents) < 0 || agent_timer_open(agents) < 0 ||
        agent_backends_open(agents, err) < 0 || agent_profiles_open(agents, err) < 0 ||
        agent_events_open(agents, err) < 0 || agent_jobs_open(agents, err) < 0 ||
        agent_follow_open(agents, err) < 0 || agent_sessions_open(agents, err) < 0) {
        agents_close(agents);
        return -1;
    }
    agent_timer_start(agents);
    *out = agents;
    return 0;
}

/* Also of one that is half open: each part tolerates that it was never opened. */
void agents_close(struct agents *agents)
{
    if (!agents)
        return;
    agent_timer_stop(agents);
    agent_sessions_close(agents);
    agent_follow_close(agents);
    agent_jobs_close(agents);
    agent_runs_close(agents);
    agent_events_close(agents);
    agent_backends_close(agents);
    agent_secrets_close(agents);
    (void)pthread_rwlock_destroy(&agents->backends_lock);
    free(agents);
}
