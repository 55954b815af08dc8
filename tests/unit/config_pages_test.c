/*
 * config_pages_test.c - the example, the man page and the daemon's page have every key, the example
 * with its default, and every policy's name; the key takes what the planner takes.
 */
#include "config_fixture.h"
#include "daemon/config/keys.h"
#include "daemon/config/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* packaging/, with the example and the man page; NULL: they are not here. */
static const char *pages;

static char *page_read(const char *name)
{
	static char text[65536];
	char path[512];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", pages ? pages : "", name);
	f = fopen(path, "re");
	if (!f)
		skip();
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

/* What has no default that could be written down is shown with an example. */
static bool has_example(const struct key *key)
{
	return key->kind == KEY_PATH || key->kind == KEY_DEVICE;
}

static void every_key_is_in_the_example_with_its_default(void **state)
{
	const char *text = page_read("coppiced.conf");

	(void)state;
	for (size_t i = 0; i < keys_n; i++) {
		char line[80], config[256], value[128];
		const char *at;

		if (!keys[i].name)
			continue;
		snprintf(line, sizeof(line),
			 has_example(&keys[i]) ? "%s = " : "\n#%s =", keys[i].name);
		at = strstr(text, line);
		if (!at)
			fail_msg("%s is not in coppiced.conf", keys[i].name);
		if (has_example(&keys[i]))
			continue;
		at += strlen(line);
		snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\n"), at);
		snprintf(config, sizeof(config), "[coppiced]\n%s =%s\n", keys[i].name, value);
		struct config preset, read = read_text(config)->config;

		config_init(&preset);
		/* Of a policy that is read more is filled than its name. */
		size_t bytes =
			keys[i].kind == KEY_POLICY ? sizeof(preset.policy.policy) : keys[i].bytes;

		if (memcmp((char *)&preset + keys[i].offset, (char *)&read + keys[i].offset,
			   bytes) != 0)
			fail_msg("%s =%s is not its default", keys[i].name, value);
	}
}

/* In the page as it writes keys, between before and after. */
static void expect_every_key(const char *page, const char *before, const char *after)
{
	const char *text = page_read(page);

	for (size_t i = 0; i < keys_n; i++) {
		char written[80];

		snprintf(written, sizeof(written), "%s%s%s", before, keys[i].name, after);
		if (keys[i].name && !strstr(text, written))
			fail_msg("%s is not in %s", keys[i].name, page);
	}
}

static void every_key_is_in_the_man_page(void **state)
{
	(void)state;
	expect_every_key("man/coppiced.conf.5", "\n.It Va ", " No");
}

static void every_key_is_in_the_daemons_page(void **state)
{
	(void)state;
	expect_every_key("../daemon/README.md", "`", "`");
}

static bool is_among(const char *words, const char *word, size_t length)
{
	for (const char *at = words; (at = strstr(at, word)) != NULL; at++) {
		if ((at == words || at[-1] == ' ') && at[length] == ' ')
			return true;
	}
	return false;
}

static void policies_are_the_words_of_the_key(void **state)
{
	bool old;
	const struct key *key = key_find("policy", &old);
	struct config config;

	(void)state;
	assert_non_null(key);
	assert_string_equal(key->words, plan_policy_words);
	config_init(&config);
	for (uint32_t i = 0; i < PLAN_N_WAYS; i++) {
		char text[128];

		assert_true(is_among(key->words, plan_ways[i], strlen(plan_ways[i])));
		assert_int_equal(plan_policy_parse(plan_ways[i], &config.policy), 0);
		snprintf(text, sizeof(text), "[coppiced]\npolicy = %s\n", plan_ways[i]);
		assert_int_equal(read_text(text)->config.policy.policy, config.policy.policy);
		assert_int_equal(read_text(text)->config.policy.deft, config.policy.deft);
	}
}

/* Whether the text from the key on, up to a blank line or the next item, has a word. */
static bool names_word(const char *text, const char *from, const char *to, const char *word)
{
	const char *begin = strstr(text, from), *end = begin ? strstr(begin + 1, to) : NULL;
	size_t length = strlen(word);

	for (const char *at = begin; at && (at = strstr(at, word)) && at < end; at++) {
		if (strchr(" \n", at[-1]) && strchr(" ,.\n", at[length]))
			return true;
	}
	return false;
}

static void assert_page_names_policies(const char *page, const char *from, const char *to)
{
	const char *text = page_read(page);
	char words[256], *rest = words, *word;

	snprintf(words, sizeof(words), "%s", plan_policy_words);
	while ((word = strsep(&rest, " ")) != NULL) {
		if (*word && !names_word(text, from, to, word))
			fail_msg("%s does not name the policy %s", page, word);
	}
}

static void pages_name_every_policy(void **state)
{
	(void)state;
	assert_page_names_policies("coppiced.conf", "\n# How queries and KV", "\n\n");
	assert_page_names_policies("man/coppiced.conf.5", "\n.It Va policy No", "\n.It ");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_is_in_the_example_with_its_default),
		cmocka_unit_test(every_key_is_in_the_man_page),
		cmocka_unit_test(every_key_is_in_the_daemons_page),
		cmocka_unit_test(policies_are_the_words_of_the_key),
		cmocka_unit_test(pages_name_every_policy),
	};

	pages = argc > 1 ? argv[1] : NULL;
	return cmocka_run_group_tests_name("config_pages", tests, NULL, NULL);
}
