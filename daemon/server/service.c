/*
 * service.c - the daemon's life as the service manager sees it.
 *
 * Its two requests of the scheduler are embedded, and each is posted again only when it is back: a
 * scheduler that is stuck collects none.
 */
#include "service.h"

#include "daemon/base/log.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/session/life.h"
#include "proto/clock.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#define CONTAINER(request, member) \
	((struct service *)((char *)(request)-offsetof(struct service, member)))
#define TICK_NS NS_PER_S
#define TICKS_A_STATUS 3u

static void status_say(struct service *service)
{
	const struct sched_status *st = &service->status;
	char text[sizeof(service->text)];

	snprintf(text, sizeof(text),
		 "%" PRIu64 " sessions, %" PRIu64 " sequences, %" PRIu64 " pages (%" PRIu64
		 " MiB)%s",
		 st->n_sessions, st->store.n_seqs, st->store.n_pages, st->store.page_bytes >> 20,
		 st->draining ? ", draining" : "");
	if (strcmp(text, service->text) == 0)
		return;
	strcpy(service->text, text);
	sd_notifyf(0, "STATUS=%s", text);
}

static void on_figures(struct request *request)
{
	struct service *service = CONTAINER(request, figures);

	service->figures_out = false;
	if (request->sched.code == 0 && !request->home->stopping)
		status_say(service);
}

static const struct verb figures = {.answer = on_figures};

static void figures_ask(struct service *service)
{
	if (service->figures_out)
		return;
	request_init(&service->figures, &figures, service->home, NULL);
	service->figures.sched.serve = verb_status.serve;
	service->figures.sched.beside = verb_status.beside;
	service->figures.sched.privileged = true;
	service->figures.sched.room = &service->status;
	service->figures_out = true;
	request_post(&service->figures);
}

static void on_probe(struct request *request)
{
	struct service *service = CONTAINER(request, probe);

	service->probe_out = false;
	service->probe_answered = request->sched.code == 0;
}

static const struct verb probe = {.serve = sched_probe,
				  .beside = beside_segments_of_others,
				  .answer = on_probe};

static void probe_send(struct service *service)
{
	if (service->probe_out)
		return;
	request_init(&service->probe, &probe, service->home, NULL);
	service->probe_out = true;
	request_post(&service->probe);
}

static void on_watchdog(struct loop_op *op, int result)
{
	struct service *service = op->user;
	uint64_t progress = sched_progress(service->home->sched);

	if (result < 0)
		return;
	if (service->probe_answered || progress != service->progress)
		sd_notify(0, "WATCHDOG=1");
	else
		log_warning("the scheduler has not moved: the watchdog is not fed");
	service->probe_answered = false;
	service->progress = progress;
	probe_send(service);
}

static void on_tick(struct loop_op *op, int result)
{
	struct service *service = op->user;
	struct sessions *home = service->home;

	if (result < 0 || home->stopping)
		return;
	probe_send(service); /* a device may fail while nothing is asked of it */
	sessions_expire(home);
	if (service->has_manager && service->n_ticks++ % TICKS_A_STATUS == 0)
		figures_ask(service);
}

void service_init(struct service *service, struct sessions *home)
{
	uint64_t watchdog_us = 0;

	*service = (struct service){.home = home, .has_manager = getenv("NOTIFY_SOCKET")};
	service->tick = (struct loop_op){.callback = on_tick, .user = service};
	service->watchdog = (struct loop_op){.callback = on_watchdog, .user = service};
	loop_timer(home->loop, &service->tick, TICK_NS, TICK_NS);
	if (sd_watchdog_enabled(0, &watchdog_us) > 0) {
		uint64_t every_ns = watchdog_us * 1000 / 3;

		probe_send(service);
		loop_timer(home->loop, &service->watchdog, every_ns, every_ns);
	}
}

void service_ready(void)
{
	sd_notify(0, "READY=1\nSTATUS=ready, no session yet");
}

void service_stopping(struct service *service)
{
	sd_notify(0, "STOPPING=1\nSTATUS=stopping");
	loop_cancel(service->home->loop, &service->watchdog);
	loop_cancel(service->home->loop, &service->tick);
}
