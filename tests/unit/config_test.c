/*
 * config_test.c - defaults, file and flags, each over the last; every bad value has a message that
 * names its place.
 */
#include "config_fixture.h"
#include "daemon/config/keys.h"
#include "daemon/config/quota.h"
#include "daemon/config/read.h"
#include "daemon/base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void defaults_are_the_documented_ones(void **state)
{
	struct config c;

	(void)state;
	config_init(&c);
	assert_string_equal(c.socket_path, "/run/coppice/coppiced.sock");
	assert_int_equal(c.socket_mode, 0666);
	assert_string_equal(c.backend, "auto");
	assert_int_equal(c.policy.policy, PLAN_AUTO);
	assert_int_equal(c.extent_bytes, 32u << 20);
	assert_int_equal(c.page_tokens, 32);
	assert_int_equal(c.batch_window, CONFIG_WINDOW_COST);
	assert_int_equal(c.batch_window_max_us, 2000);
	assert_int_equal(c.max_arena_bytes, 1u << 30);
	assert_int_equal(c.max_device_arena_bytes, 1u << 30);
	assert_int_equal(c.arena_bytes, UINT64_C(16) << 30);
	assert_int_equal(c.domain_arena_bytes, UINT64_C(8) << 30);
	assert_int_equal(c.prompt_bytes, 1u << 30);
	assert_int_equal(c.domain_prompt_bytes, 256u << 20);
	assert_int_equal(c.domain_percent, 90);
	assert_int_equal(c.domain_bytes, 0);
	assert_int_equal(c.device_arena_bytes, UINT64_C(4) << 30);
	assert_int_equal(c.domain_device_arena_bytes, UINT64_C(2) << 30);
	assert_int_equal(c.max_pin_ms, 24 * 3600 * 1000);
}

/* Extents of two users' limits, one of whom is root or the daemon's own. */
static void assert_limits(struct config *c, uint64_t others, uint64_t own)
{
	assert_int_equal(quota_domain_bytes(c, false), others * c->extent_bytes);
	assert_int_equal(quota_domain_bytes(c, true), own * c->extent_bytes);
}

static void a_user_leaves_an_extent_where_there_are_two(void **state)
{
	struct config c;

	(void)state;
	config_init(&c);
	for (uint32_t percent = 1; percent < 100; percent++) {
		c.domain_percent = percent;
		for (uint64_t n = 1; n < 1000; n += n < 20 ? 1 : 7) {
			uint64_t most, kept;

			c.pool_bytes = n * c.extent_bytes;
			most = quota_domain_bytes(&c, false) / c.extent_bytes;
			assert_true(most >= 1 && (n == 1 || most < n));
			assert_true(most == 1 || most * 100 <= n * percent);
			assert_true((most + 1) * 100 > n * percent);
			kept = quota_reserved_extents(&c);
			assert_int_equal(kept, n >= 4 && n - most < 2 ? 2 : n - most);
		}
	}
}

static void of_two_limits_of_a_user_the_smaller_counts(void **state)
{
	struct config c;

	(void)state;
	config_init(&c);
	c.pool_bytes = 20 * c.extent_bytes;
	assert_limits(&c, 18, 0);
	c.stage_bytes = 10 * c.extent_bytes;
	assert_limits(&c, 9, 0);
	c.domain_bytes = 12 * c.extent_bytes;
	assert_limits(&c, 9, 12);
	c.domain_bytes = 4 * c.extent_bytes;
	assert_limits(&c, 4, 4);
	assert_int_equal(quota_reserved_extents(&c), 2);
	c.domain_percent = 100;
	assert_int_equal(quota_reserved_extents(&c), 0);
	assert_limits(&c, 4, 4);
	c.domain_bytes = 0;
	assert_limits(&c, 0, 0);
}

/* Who says how much means everybody. */
static void of_a_tier_a_user_has_three_quarters(void **state)
{
	struct config c;

	(void)state;
	config_init(&c);
	assert_int_equal(c.domain_host_bytes, 0);
	assert_int_equal(c.domain_file_bytes, 0);
	assert_int_equal(quota_host_share(&c, 80 * c.extent_bytes, false), 60 * c.extent_bytes);
	assert_int_equal(quota_file_share(&c, 80 * c.extent_bytes), 60 * c.extent_bytes);
	assert_int_equal(quota_file_share(&c, c.extent_bytes), c.extent_bytes);
	c.domain_host_bytes = 4096;
	c.domain_file_bytes = 90 * c.extent_bytes;
	assert_int_equal(quota_host_share(&c, 80 * c.extent_bytes, false), 4096);
	assert_int_equal(quota_file_share(&c, 80 * c.extent_bytes), 80 * c.extent_bytes);
}

/* What pages on their way there have for themselves is nobody's share: a quarter at most. */
static void above_a_file_three_quarters_are_of_what_is_left(void **state)
{
	struct config c;

	(void)state;
	config_init(&c);
	c.tier_depth = 20;
	assert_int_equal(quota_host_share(&c, 120 * c.extent_bytes, true), 75 * c.extent_bytes);
	assert_int_equal(quota_host_share(&c, 64 * c.extent_bytes, true), 36 * c.extent_bytes);
	assert_int_equal(quota_host_share(&c, c.extent_bytes, true), c.extent_bytes);
}

static void assert_pool(const struct reading *reading, uint64_t bytes, uint32_t percent)
{
	assert_int_equal(reading->r, 0);
	assert_int_equal(reading->config.pool_bytes, bytes);
	assert_int_equal(reading->config.pool_percent, percent);
}

static void pool_may_be_a_share_and_stays_one(void **state)
{
	char *path = write_file("[coppiced]\npool = 40%\n");

	(void)state;
	assert_pool(READ((char *)"--config", path), 0, 40);
	assert_pool(READ((char *)"--config", path, (char *)"--pool=1G"), 1u << 30, 0);
	assert_pool(READ((char *)"--config", path, (char *)"--pool=100%"), 0, 100);
	assert_pool(READ((char *)"--config", path, (char *)"--pool=0"), 0, 0);
	unlink(path);
	assert_pool(READ((char *)"--pool=64M", (char *)"--pool=1%"), 0, 1);
	assert_pool(read_text("[coppiced]\npool = 2%\n"), 0, 2);
	assert_pool(read_text(""), 0, 0);
	assert_pool(READ((char *)"--stage=64M", (char *)"--host-tier=1G"), 0, 0);
}

static void file_overrides_defaults(void **state)
{
	struct reading *reading = read_text("# a comment\n[coppiced]\nsocket = /tmp/x.sock\n"
					    "socket_mode = 0600\npool = 1G\nextent=4m\n"
					    "policy = deft-chunk\nbatch_window = always\n"
					    "max_pin_ms = 5000\nloop = epoll\n");

	(void)state;
	assert_int_equal(reading->r, 0);
	assert_string_equal(reading->said, "");
	assert_string_equal(reading->config.socket_path, "/tmp/x.sock");
	assert_int_equal(reading->config.socket_mode, 0600);
	assert_int_equal(reading->config.pool_bytes, 1u << 30);
	assert_int_equal(reading->config.extent_bytes, 4u << 20);
	assert_int_equal(reading->config.policy.policy, PLAN_DEFT);
	assert_int_equal(reading->config.policy.deft, PLAN_DEFT_NODE_CHUNK);
	assert_int_equal(reading->config.batch_window, CONFIG_WINDOW_ALWAYS);
	assert_int_equal(reading->config.max_pin_ms, 5000);
	assert_string_equal(reading->config.loop, "epoll");
}

static void flags_override_the_file(void **state)
{
	char *path = write_file("[coppiced]\nthreads = 3\nclaim_ms = 70\n");
	struct reading *reading = READ((char *)"--threads=5", (char *)"--config", path,
				       (char *)"--batch-window-max-us", (char *)"7");

	(void)state;
	unlink(path);
	assert_int_equal(reading->r, 0);
	assert_int_equal(reading->config.n_threads, 5);
	assert_int_equal(reading->config.claim_ms, 70);
	assert_int_equal(reading->config.batch_window_max_us, 7);
}

static void sizes_take_suffixes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {{"33554432", 32u << 20},
		     {"65536K", 64u << 20},
		     {"64M", 64u << 20},
		     {"2g", UINT64_C(2) << 30},
		     {"1T", UINT64_C(1) << 40}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct reading *reading = READ((char *)"--pool", (char *)cases[i].text);

		assert_int_equal(reading->r, 0);
		assert_int_equal(reading->config.pool_bytes, cases[i].bytes);
	}
}

static void every_bad_value_in_a_file_has_its_message(void **state)
{
	static const struct {
		const char *line, *says;
	} cases[] = {
		{"socket = relative.sock", "a path that begins with / or ./"},
		{"socket = "
		 "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		 "aa"
		 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		 "at most 107 bytes"},
		{"socket_mode = 0888", "permission bits in octal"},
		{"socket_mode = 7777", "permission bits in octal"},
		{"backend = tpu", "one of: auto cpu"},
		{"backend = tpu", "auto cpu cuda"},
		{"device = 0123456789012345678901234567890123456789012345678901234567890123",
		 "an index, or a UUID"},
		{"devices = 0,,1", "32 devices of one kind"},
		{"devices = cpu,0", "32 devices of one kind"},
		{"split = halves", "auto, tokens or heads"},
		{"split = auto, :heads", "auto, tokens or heads"},
		{"split = m:", "auto, tokens or heads"},
		{"split = m:heads, auto, m:tokens", "each once"},
		{"split = heads,heads", "each once"},
		{"ranks = here", "a numeric host:port"},
		{"ranks = /a,,/b", "at most 64 addresses"},
		{"ranks = 10.0.0.1:4800,host:4800", "a numeric host:port"},
		{"ranks = 10.0.0.1:4800,10.0.0.1:69999", "a numeric host:port"},
		{"ranks = 10.0.0.1:4800,10.0.0.2:0", "a numeric host:port"},
		{"ranks = 10.0.0.1:4800,10.0.0.2:", "a numeric host:port"},
		{"ranks = /a,/b, /a", "each once"},
		{"policy = best", "one of: auto none cascade"},
		{"pool = lots", "K, M, G or T"},
		{"pool = 5X", "K, M, G or T"},
		{"pool = much", "or 1% to 100% of the memory of what computes"},
		{"pool = 0%", "1% to 100%"},
		{"pool = 101%", "1% to 100%"},
		{"pool = 18446744073709551616%", "1% to 100%"},
		{"pool = -5%", "1% to 100%"},
		{"pool = 2.5%", "1% to 100%"},
		{"pool = 5%%", "1% to 100%"},
		{"pool = 5%M", "1% to 100%"},
		{"pool = 5M%", "1% to 100%"},
		{"pool = %", "1% to 100%"},
		{"extent = 5%", "K, M, G or T, from 2M"},
		{"pool = 5MB", "K, M, G or T"},
		{"pool = -1", "K, M, G or T"},
		{"pool = 99999999999999T", "K, M, G or T"},
		{"extent = 1M", "from 2M"},
		{"extent = 1048576", "from 2097152"},
		{"threads = many", "a number from 0 to 1024"},
		{"threads = 1025", "a number from 0 to 1024"},
		{"page_tokens = 8", "a number from 16 to 64"},
		{"spin_us = 1000001", "a number from 0 to 1000000"},
		{"claim_ms = 0", "a number from 1"},
		{"batch_window = sometimes", "one of: cost always never"},
		{"batch_window =", "one of: cost always never"},
		{"batch_window_max_us = 1e3", "a number from 0"},
		{"prefill_rows = 0", "a number from 1"},
		{"batch_budget_ms = 0", "a number from 1"},
		{"max_sessions = 0", "a number from 1"},
		{"max_domain_sessions = 0", "a number from 1"},
		{"max_models = 0", "a number from 1"},
		{"max_lanes = 0", "a number from 1"},
		{"max_seqs = 0", "a number from 1"},
		{"max_arenas = 0", "a number from 1"},
		{"max_arena_bytes = 1K", "from 2048K"},
		{"prompt_bytes = 0", "from 1048576"},
		{"domain_prompt_bytes = 1K", "from 1024K"},
		{"max_device_arena_bytes = some", "K, M, G or T"},
		{"device_arena_bytes = -1", "K, M, G or T"},
		{"domain_bytes = x", "K, M, G or T"},
		{"domain_percent = 0", "a number from 1"},
		{"domain_percent = 101", "a number from 1 to 100"},
		{"max_seq_tokens = 0", "a number from 1"},
		{"max_pin_ms = forever", "a number from 0"},
		{"loop = kqueue", "one of: auto io_uring epoll"},
		{"log_level = loud", "one of: debug info warning error"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[256], where[64];
		struct reading *reading;

		snprintf(text, sizeof(text), "[coppiced]\n\n%s\n", cases[i].line);
		reading = read_text(text);
		assert_int_equal(reading->r, -EINVAL);
		assert_says(reading, cases[i].says);
		snprintf(where, sizeof(where), ":3: %.*s", (int)strcspn(cases[i].line, " "),
			 cases[i].line);
		assert_says(reading, where);
	}
}

static void bad_flags_have_their_message(void **state)
{
	(void)state;
	assert_int_equal(READ((char *)"--batch-window-max-us=x")->r, -EINVAL);
	assert_says(READ((char *)"--batch-window-max-us=x"),
		    "--batch-window-max-us: \"x\" is not accepted");
	assert_says(READ((char *)"--socket-mode=9"), "--socket-mode: \"9\"");
	assert_says(READ((char *)"--backend=tpu"), "--backend: \"tpu\" is not accepted");
	assert_int_equal(READ((char *)"--no-such-flag")->r, -EINVAL);
	assert_says(READ((char *)"--no-such-flag"), "--no-such-flag is no option: see --help");
	assert_says(READ((char *)"word"), "takes flags only");
}

static void what_one_value_does_not_tell_is_checked_too(void **state)
{
	(void)state;
	assert_says(READ((char *)"--page-tokens=48"), "accepted: 16, 32, 64");
	assert_says(READ((char *)"--extent=3M"), "multiples of 2M");
	assert_says(READ((char *)"--pool=4M"), "one extent");
	assert_int_equal(READ((char *)"--pool=4M")->r, -EINVAL);
	assert_says(READ((char *)"--file-tier=/x"), "file_tier: it needs host_tier");
	assert_says(READ((char *)"--host-tier=1M"), "one extent");
	assert_says(READ((char *)"--stage=32M"), "stage: it needs host_tier");
	assert_says(READ((char *)"--stage=64M", (char *)"--pool=64M", (char *)"--host-tier=1G"),
		    "less than the pool");
	assert_says(READ((char *)"--devices=0,1", (char *)"--device=2"), "one of them");
	assert_says(READ((char *)"--devices=0,1", (char *)"--backend=cpu"), "devices of that kind");
	assert_says(READ((char *)"--devices=cpu,cpu", (char *)"--backend=cuda"),
		    "devices of that kind");
	assert_says(READ((char *)"--ranks=/a,/b", (char *)"--rank=2"), "a number below 2");
	assert_says(READ((char *)"--rank=1"), "a number below 1");
}

static void devices_say_what_computes_and_how_large_an_extent_is(void **state)
{
	struct reading *reading = READ((char *)"--devices=0, 1,GPU-7", (char *)"--extent=4M",
				       (char *)"--pool=100M", (char *)"--split=auto, a:b:heads");

	(void)state;
	assert_int_equal(reading->r, 0);
	assert_string_equal(reading->config.backend, "cuda");
	assert_int_equal(reading->config.n_devices, 3);
	assert_int_equal(reading->config.extent_bytes, 12u << 20);
	assert_int_equal(reading->config.pool_bytes, 96u << 20);
	reading = READ((char *)"--devices=cpu,cpu");
	assert_string_equal(reading->config.backend, "cpu");
	assert_int_equal(reading->config.n_devices, 2);
	reading = READ((char *)"--devices=3");
	assert_string_equal(reading->config.device, "3");
	assert_int_equal(reading->config.n_devices, 1);
}

static void pool_is_cut_to_whole_extents(void **state)
{
	struct reading *reading = READ((char *)"--pool=100M", (char *)"--extent=32M");

	(void)state;
	assert_int_equal(reading->r, 0);
	assert_int_equal(reading->config.pool_bytes, 96u << 20);
}

static void unknown_keys_sections_and_lines_are_errors(void **state)
{
	(void)state;
	assert_says(read_text("[coppiced]\nspeed = 9\n"), ":2: no key speed; accepted are");
	assert_says(read_text("[other]\npool = 1G\n"), ":2: pool stands in section [other]");
	assert_says(read_text("pool = 1G\n"), ":1: pool stands in no section: write");
	assert_says(read_text("[coppiced]\npool = 1G # half\n"), "a comment has a line");
	assert_says(read_text("[coppiced]\n\nnonsense\n"), ":3: not understood");
	assert_int_equal(read_text("[coppiced]\n\nnonsense\n")->r, -EINVAL);
}

static void a_misspelled_key_or_flag_is_told_what_was_meant(void **state)
{
	(void)state;
	assert_says(read_text("[coppiced]\npol = 1G\n"), ":2: no key pol: did you mean pool?");
	assert_says(read_text("[coppiced]\nmax_laines = 2\n"), "did you mean max_lanes?");
	assert_int_equal(READ((char *)"--pol=1G")->r, -EINVAL);
	assert_says(READ((char *)"--pol=1G"), "--pol is no option: did you mean --pool?");
}

static void flags_are_spelled_in_full(void **state)
{
	(void)state;
	assert_int_equal(READ((char *)"--po=64M")->r, -EINVAL);
	assert_int_equal(READ((char *)"--check")->r, -EINVAL);
	assert_says(READ((char *)"--check"), "did you mean --check-config?");
}

static void old_names_work_and_are_warned_of(void **state)
{
	struct reading *reading = read_text("[coppiced]\nbatch_hold = never\n"
					    "batch_wait_max_us = 7\nguardian_socket = /tmp/g\n");

	(void)state;
	assert_int_equal(reading->r, 0);
	assert_int_equal(reading->config.batch_window, CONFIG_WINDOW_NEVER);
	assert_int_equal(reading->config.batch_window_max_us, 7);
	assert_says(reading, ":2: batch_hold: it is called batch_window now");
	assert_says(reading, ":3: batch_wait_max_us: it is called batch_window_max_us now");
	assert_says(reading, ":4: guardian_socket: nothing needs it any more");
	reading = READ((char *)"--keep-socket=/tmp/h", (char *)"--batch-hold", (char *)"always",
		       (char *)"--batch-wait-max=9");
	assert_int_equal(reading->r, 0);
	assert_int_equal(reading->config.batch_window, CONFIG_WINDOW_ALWAYS);
	assert_int_equal(reading->config.batch_window_max_us, 9);
	assert_says(reading, "--keep-socket: nothing needs it any more");
	assert_says(reading, "--batch-wait-max: it is called --batch-window-max-us now");
}

static void sizes_in_errors_are_in_the_unit_that_was_typed(void **state)
{
	(void)state;
	assert_says(READ((char *)"--pool=4M"),
		    "pool: 4M is not accepted; accepted: one extent (32M");
	assert_says(READ((char *)"--pool=4096K", (char *)"--extent=8192K"),
		    "pool: 4096K is not accepted; accepted: one extent (8192K");
	assert_says(READ((char *)"--pool=4194304"), "pool: 4194304 is not accepted");
	assert_says(READ((char *)"--extent=3M"), "extent: 3M is not accepted");
	assert_says(READ((char *)"--stage=1G", (char *)"--pool=1024M", (char *)"--host-tier=1G"),
		    "stage: 1G is not accepted; accepted: less than the pool (1024M)");
}

static void check_config_is_told_to_the_caller(void **state)
{
	struct reading *reading = READ((char *)"--check-config");

	(void)state;
	assert_int_equal(reading->r, 0);
	assert_true(reading->config.check_only);
}

static void help_names_every_flag(void **state)
{
	struct reading *reading = READ((char *)"--help");

	(void)state;
	assert_int_equal(reading->r, 1);
	assert_non_null(strstr(reading->printed, "--batch-window-max-us=N"));
	assert_null(strstr(reading->printed, "--batch-hold"));
	assert_non_null(strstr(reading->printed, "--max-domain-sessions=N"));
	assert_non_null(strstr(reading->printed, "--check-config"));
}

static void help_is_in_the_order_in_which_it_is_read(void **state)
{
	static const char *const order[] = {"--config=",  "--check-config",    "The socket",
					    "--socket=",  "--socket-mode=",    "What computes",
					    "--backend=", "KV in the pool",    "--pool=",
					    "Limits",	  "The daemon itself", "--log-level="};
	struct reading *reading = READ((char *)"--help");
	const char *at = reading->printed;

	(void)state;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		at = strstr(at, order[i]);
		assert_non_null(at);
	}
}

static void version_is_printed(void **state)
{
	struct reading *reading = READ((char *)"--version");

	(void)state;
	assert_int_equal(reading->r, 1);
	assert_string_equal(reading->printed, "coppiced " COPPICE_VERSION "\n");
}

static void journal_is_known_by_device_and_inode(void **state)
{
	char stream[64];
	struct stat st;

	(void)state;
	assert_int_equal(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	assert_true(log_is_journal(stream, STDERR_FILENO));
	assert_false(log_is_journal("1:1", STDERR_FILENO));
	assert_false(log_is_journal("nonsense", STDERR_FILENO));
	assert_false(log_is_journal(NULL, STDERR_FILENO));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_the_documented_ones),
		cmocka_unit_test(a_user_leaves_an_extent_where_there_are_two),
		cmocka_unit_test(of_two_limits_of_a_user_the_smaller_counts),
		cmocka_unit_test(of_a_tier_a_user_has_three_quarters),
		cmocka_unit_test(above_a_file_three_quarters_are_of_what_is_left),
		cmocka_unit_test(pool_may_be_a_share_and_stays_one),
		cmocka_unit_test(file_overrides_defaults),
		cmocka_unit_test(flags_override_the_file),
		cmocka_unit_test(sizes_take_suffixes),
		cmocka_unit_test(every_bad_value_in_a_file_has_its_message),
		cmocka_unit_test(bad_flags_have_their_message),
		cmocka_unit_test(what_one_value_does_not_tell_is_checked_too),
		cmocka_unit_test(devices_say_what_computes_and_how_large_an_extent_is),
		cmocka_unit_test(pool_is_cut_to_whole_extents),
		cmocka_unit_test(unknown_keys_sections_and_lines_are_errors),
		cmocka_unit_test(check_config_is_told_to_the_caller),
		cmocka_unit_test(a_misspelled_key_or_flag_is_told_what_was_meant),
		cmocka_unit_test(flags_are_spelled_in_full),
		cmocka_unit_test(old_names_work_and_are_warned_of),
		cmocka_unit_test(sizes_in_errors_are_in_the_unit_that_was_typed),
		cmocka_unit_test(help_names_every_flag),
		cmocka_unit_test(help_is_in_the_order_in_which_it_is_read),
		cmocka_unit_test(version_is_printed),
		cmocka_unit_test(journal_is_known_by_device_and_inode),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
