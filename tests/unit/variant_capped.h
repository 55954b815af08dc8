/*
 * variant_capped.h - a variant of attention that only tests have: scores are capped, as some models
 * cap them, score := CAPPED_AT x tanh(score / CAPPED_AT), and rows see a sink, of another score for
 * each query head.
 */
#ifndef COPPICE_TESTS_VARIANT_CAPPED_H
#define COPPICE_TESTS_VARIANT_CAPPED_H

#define CAPPED_AT 1.5
#define CAPPED_SINK(q_head) (0.25 * ((q_head) % 7))
/* Scores are powers of 2 where they become weights: times log2 e. */
#define CAPPED_AT_LOG2 ((float)(CAPPED_AT * 1.4426950408889634))

#endif
