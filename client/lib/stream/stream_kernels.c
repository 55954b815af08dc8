/*
 * stream_kernels.c - the two kernels, as PTX that the driver compiles, and their launches.
 *
 * They do what the driver's stream memory operations do: a write is behind a fence for the whole
 * system, a wait compares cyclically, so that bit 62 in the word lets it go on (abi.h). Of a device
 * that is older than sm_90, or not under MPS, there are none.
 */
#include "stream_kernels.h"

#include <stdbool.h>

#define ATTRIBUTE_MAJOR 75 /* of the compute capability */
#define ATTRIBUTE_MPS 133
#define LEAST_MAJOR 9

/* As the memory operations do it: a write is behind a fence for the whole system, a wait compares
 * cyclically. */
static const char image[] = ".version 7.8\n"
			    ".target sm_90\n"
			    ".address_size 64\n"
			    ".visible .entry tell(.param .u64 word, .param .u64 value)\n"
			    "{\n"
			    "	.reg .b64 %word, %value;\n"
			    "	ld.param.u64 %word, [word];\n"
			    "	ld.param.u64 %value, [value];\n"
			    "	griddepcontrol.wait;\n"
			    "	fence.acq_rel.sys;\n"
			    "	st.relaxed.sys.global.u64 [%word], %value;\n"
			    "	ret;\n"
			    "}\n"
			    ".visible .entry await(.param .u64 word, .param .u64 value,\n"
			    "			.param .u64 near)\n"
			    "{\n"
			    "	.reg .pred %reached, %far, %again;\n"
			    "	.reg .b32 %looks;\n"
			    "	.reg .b64 %word, %value, %near, %now;\n"
			    "	ld.param.u64 %word, [word];\n"
			    "	ld.param.u64 %value, [value];\n"
			    "	ld.param.u64 %near, [near];\n"
			    "	setp.eq.u64 %far, %near, 0;\n"
			    "look:\n"
			    "	mov.u32 %looks, 16;\n"
			    "	@%far bra look_far;\n"
			    "look_near:\n"
			    "	ld.acquire.sys.global.u64 %now, [%near];\n"
			    "	sub.s64 %now, %now, %value;\n"
			    "	setp.ge.s64 %reached, %now, 0;\n"
			    "	@%reached ret;\n"
			    "	sub.u32 %looks, %looks, 1;\n"
			    "	setp.ne.u32 %again, %looks, 0;\n"
			    "	@%again bra look_near;\n"
			    "look_far:\n"
			    "	ld.acquire.sys.global.u64 %now, [%word];\n"
			    "	sub.s64 %now, %now, %value;\n"
			    "	setp.lt.s64 %again, %now, 0;\n"
			    "	@%again bra look;\n"
			    "	ret;\n"
			    "}\n";

static bool is_served(const struct driver *driver, int device)
{
	int mps = 0, major = 0;

	return driver->device_attribute(&mps, ATTRIBUTE_MPS, device) == 0 && mps == 1 &&
	       driver->device_attribute(&major, ATTRIBUTE_MAJOR, device) == 0 &&
	       major >= LEAST_MAJOR;
}

void stream_kernels_load(const struct driver *driver, int device, struct stream_kernels *ret)
{
	struct stream_kernels kernels = {0};

	*ret = kernels;
	if (!is_served(driver, device) || driver->module_load(&kernels.module, image) != 0)
		return;
	if (driver->module_function(&kernels.tell, kernels.module, "tell") == 0 &&
	    driver->module_function(&kernels.await, kernels.module, "await") == 0)
		*ret = kernels;
	else
		driver->module_unload(kernels.module);
}

void stream_kernels_unload(const struct driver *driver, struct stream_kernels *kernels)
{
	if (kernels->module)
		driver->module_unload(kernels->module);
	*kernels = (struct stream_kernels){0};
}

static int launch(const struct driver *driver, void *function, void *stream, bool early,
		  struct stream_word word)
{
	void *arguments[] = {&word.address, &word.value, &word.near};
	struct driver_launch_attribute attribute = {.kind = DRIVER_LAUNCH_EARLY, .value = {1}};
	struct driver_launch one = {.grid = {1, 1, 1},
				    .block = {1, 1, 1},
				    .stream = stream,
				    .attributes = &attribute,
				    .n_attributes = early};

	return driver->launch(&one, function, arguments, NULL);
}

int stream_kernels_tell(const struct driver *driver, const struct stream_kernels *kernels,
			void *stream, struct stream_word word)
{
	return launch(driver, kernels->tell, stream, true, word);
}

int stream_kernels_await(const struct driver *driver, const struct stream_kernels *kernels,
			 void *stream, struct stream_word word)
{
	return launch(driver, kernels->await, stream, false, word);
}
