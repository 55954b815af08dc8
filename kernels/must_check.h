/* must_check.h - what can fail says so where it is declared, and the compiler asks whether somebody
 * looked. */
#ifndef COPPICE_KERNELS_MUST_CHECK_H
#define COPPICE_KERNELS_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
