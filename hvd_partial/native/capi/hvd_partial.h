/* Copyright 2026 The hvd_partial authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The C ABI of the engine. The Python module and the TensorFlow op library
 * use nothing else, so no C++ type and no exception crosses this line.
 *
 * One engine per process. Every function is thread-safe with respect to the
 * progress thread; the calls on one channel (deposit, wait, header, read,
 * release, flush) belong to one thread at a time.
 *
 * A step of a rank:
 *   deposit(gradients)                 never waits for other ranks
 *   wait()                             until >= 1 result lies in the ring
 *   for each: header(0), read(0), release(1)
 */
#ifndef HVD_PARTIAL_CAPI_HVD_PARTIAL_H_
#define HVD_PARTIAL_CAPI_HVD_PARTIAL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVDP_EXPORT __attribute__((visibility("default")))
#define HVDP_ABI_VERSION 2

typedef enum {
  HVDP_OK = 0,
  HVDP_INVALID_ARGUMENT = 1,
  HVDP_MISMATCH = 2,      /* ranks disagree about a channel */
  HVDP_PEER_LOST = 3,     /* a process died */
  HVDP_ABORTED = 4,       /* a rank gave up and said why */
  HVDP_NOT_CONNECTED = 5, /* before hvdp_connect or after hvdp_close */
  HVDP_TIMEOUT = 6,
  HVDP_TRANSPORT = 7,
  HVDP_INTERNAL = 8
} hvdp_status;

typedef enum {
  HVDP_FLOAT32 = 0,
  HVDP_FLOAT64 = 1,
  HVDP_FLOAT16 = 2,
  HVDP_BFLOAT16 = 3,
  HVDP_INT32 = 4,
  HVDP_INT64 = 5
} hvdp_dtype;

typedef enum {
  HVDP_SYNC = 0,
  HVDP_MAJORITY = 1,
  HVDP_SOLO = 2,
  HVDP_QUORUM = 3,     /* uses `quorum` */
  HVDP_DESIGNATED = 4, /* uses `seed` */
  HVDP_ASYNC = 5
} hvdp_mode_kind;

typedef struct {
  int32_t kind;   /* hvdp_mode_kind */
  int32_t quorum; /* 1..size, for HVDP_QUORUM */
  uint64_t seed;  /* for HVDP_DESIGNATED */
} hvdp_mode;

typedef enum {
  HVDP_AVERAGE_NONE = 0,
  HVDP_AVERAGE_SIZE = 1,
  HVDP_AVERAGE_CONTRIBUTIONS = 2
} hvdp_average;
typedef enum { HVDP_REPLAY = 0, HVDP_LATEST = 1 } hvdp_catch_up;

/* Text of the calling thread's last failure; never NULL. */
HVDP_EXPORT const char* hvdp_last_error(void);
HVDP_EXPORT int32_t hvdp_abi_version(void);

/* ---- engine ------------------------------------------------------------ */

/* Prepares this rank. The address is valid until hvdp_close. */
HVDP_EXPORT int32_t hvdp_open(int32_t rank, int32_t size, const uint8_t** address,
                              size_t* address_size);
/* addresses[i] is rank i's. Starts the progress thread. */
HVDP_EXPORT int32_t hvdp_connect(const uint8_t* const* addresses, const size_t* address_sizes);
/* Leaves every channel, waits until all ranks have done so, stops. While
 * others still make rounds it waits for them; after `silence_seconds` without
 * any sign of life, or once anything failed, it stops at once. */
HVDP_EXPORT int32_t hvdp_close(double silence_seconds);
/* Ends the job on every rank with HVDP_ABORTED and this reason. */
HVDP_EXPORT int32_t hvdp_abort(const char* reason);

/* What the engine says while it runs, and what it leaves when it fails. */
typedef struct {
  double stall_warning_seconds; /* a line when ranks have waited so long; 0 or less: none */
  const char* flight_directory; /* for flight records; NULL or empty: none are written */
  const char* versions;         /* for flight records: what runs here; may be NULL */
  int32_t flight_signal;        /* this signal writes one; 0: none does */
} hvdp_diagnosis;
/* Between hvdp_open and hvdp_connect. Without it: no lines and no records. The
 * signal's handler calls the one that was there before, and stays. */
HVDP_EXPORT int32_t hvdp_set_diagnosis(const hvdp_diagnosis* options);
/* Rounds that can do without a rank whose process has not answered for so long
 * are made without it; it gets them when it is back. Between hvdp_open and
 * hvdp_connect; 0 (the default): all wait for it. Rank 0's value counts, others
 * report after half of theirs. */
HVDP_EXPORT int32_t hvdp_set_leave_out(double seconds);
/* Waits for the next line for people; the caller prints it. *level is one of
 * Python's logging (20, 30, 40); *text is valid until the thread's next call.
 * HVDP_TIMEOUT: none within `seconds`; HVDP_NOT_CONNECTED: none will come. */
HVDP_EXPORT int32_t hvdp_next_notice(double seconds, int32_t* level, const char** text);
/* *path is empty if none was written; valid until the thread's next call. */
HVDP_EXPORT int32_t hvdp_write_flight_record(const char* reason, const char** path);

/* 1 between connect and close. */
HVDP_EXPORT int32_t hvdp_connected(void);
HVDP_EXPORT int32_t hvdp_rank(void);
HVDP_EXPORT int32_t hvdp_size(void);
/* Sets the mode of all channels, present and future. */
HVDP_EXPORT int32_t hvdp_set_mode_all(const hvdp_mode* mode);

typedef struct {
  uint64_t control_messages_sent;
  uint64_t bulk_bytes_sent;
  uint64_t bulk_bytes_received;
  uint64_t rounds; /* completed here, over all channels */
} hvdp_engine_stats;
HVDP_EXPORT int32_t hvdp_get_engine_stats(hvdp_engine_stats* stats);
/* What transports UCX found, one per line; works without an engine. */
HVDP_EXPORT const char* hvdp_transports(void);

/* ---- channels ---------------------------------------------------------- */

typedef struct hvdp_channel hvdp_channel;

typedef struct {
  const char* name;
  int32_t tensor_count;
  const int64_t* element_counts;
  const int32_t* dtypes; /* hvdp_dtype */
  /* For people, and compared between the ranks: one line per tensor, e.g.
   * "dense/kernel float32[784,10]". May be NULL: made from the above. */
  const char* signature;
  hvdp_mode mode;
  int32_t average;  /* hvdp_average */
  int32_t catch_up; /* hvdp_catch_up */
  int32_t max_lag;  /* >= 1 */
  /* weights[tau] for a contribution tau rounds late; larger tau use the last. */
  const double* staleness_weights;
  int32_t staleness_weight_count; /* >= 1 */
  double grace_seconds;           /* negative: learned ("auto") */
  int32_t skip_nonfinite;         /* leave out contributions with inf or nan */
} hvdp_channel_options;

/* Does not wait for the other ranks: disagreements show at the first deposit
 * or wait, on every rank. Opening a name again with the same options returns
 * the same channel. */
HVDP_EXPORT int32_t hvdp_channel_open(const hvdp_channel_options* options, hvdp_channel** channel);
/* NULL where there is none. */
HVDP_EXPORT hvdp_channel* hvdp_channel_find(const char* name);

/* Adds one contribution (all tensors) to the send buffer, weighted by its
 * staleness. compute_seconds: time since the previous call returned, or
 * negative to let the engine measure it. *skipped (may be NULL) is 1 if the
 * contribution was left out because it was not finite. */
HVDP_EXPORT int32_t hvdp_channel_deposit(hvdp_channel* channel, const void* const* tensors,
                                         double compute_seconds, int32_t* skipped);

/* Blocks until results wait to be applied (*available > 0), a flush has ended
 * (*flushed = 1 and *available == 0), something failed, or `seconds` have
 * passed (HVDP_TIMEOUT; negative: no limit). */
HVDP_EXPORT int32_t hvdp_channel_wait(hvdp_channel* channel, double seconds, int32_t* available,
                                      int32_t* flushed);
/* The same without blocking: `ready` runs once, on the progress thread or on
 * the calling one, when hvdp_channel_wait would return. It must not block.
 * At most one at a time for each channel. */
typedef void (*hvdp_ready)(void* context);
HVDP_EXPORT int32_t hvdp_channel_notify(hvdp_channel* channel, hvdp_ready ready, void* context);

typedef struct {
  uint64_t round;
  hvdp_mode mode;
  int32_t contributions;        /* local batches in the sum */
  int32_t contributors;         /* ranks with at least one */
  int32_t skipped;              /* contributions left out as not finite, all ranks */
  int32_t included;             /* 1: this rank's pending contribution was in it */
  int32_t flush;                /* 1: the last round of a flush */
  double weight;                /* sum of the weights of the contributions */
  double divisor;               /* hvdp_channel_read has divided by it */
  uint64_t total_contributions; /* of rounds 0..round, same on all ranks */
  int32_t dropped;              /* contributions of excluded ranks that went nowhere */
} hvdp_round_header;

/* index 0 is the oldest result that was not released. */
HVDP_EXPORT int32_t hvdp_channel_header(hvdp_channel* channel, int32_t index,
                                        hvdp_round_header* header);
/* Per-rank facts of the same round; arrays of `size` entries, may be NULL:
 * contributions of each rank, seconds it computed before its last call. */
HVDP_EXPORT int32_t hvdp_channel_header_ranks(hvdp_channel* channel, int32_t index,
                                              int32_t* contributions, double* compute_seconds);
/* Of the same round: contributions of each excluded rank that were dropped. */
HVDP_EXPORT int32_t hvdp_channel_header_dropped(hvdp_channel* channel, int32_t index,
                                                int32_t* dropped);
/* Copies the values out, divided. */
HVDP_EXPORT int32_t hvdp_channel_read(hvdp_channel* channel, int32_t index, void* const* tensors);
/* The oldest `count` results have been applied. */
HVDP_EXPORT int32_t hvdp_channel_release(hvdp_channel* channel, int32_t count);

/* Starts a flush: afterwards wait/read/release until *flushed. */
HVDP_EXPORT int32_t hvdp_channel_begin_flush(hvdp_channel* channel);
/* This rank is done with the channel; what it still holds goes into the next
 * round, and the others go on. */
HVDP_EXPORT int32_t hvdp_channel_leave(hvdp_channel* channel);
/* In force at the same round on every rank. */
HVDP_EXPORT int32_t hvdp_channel_set_mode(hvdp_channel* channel, const hvdp_mode* mode);

/* From the next round on rounds wait for these ranks no longer; count 0: for
 * all again. They stay, and what they contribute goes into the round that it
 * comes for, or, with drop, nowhere. One rank's call is enough. */
HVDP_EXPORT int32_t hvdp_channel_exclude(hvdp_channel* channel, const int32_t* ranks, int32_t count,
                                         int32_t drop);
/* Mode and exclusions together, for a decision that all ranks make alike, each
 * at its time. `number`, from 1, grows with each: the first that arrives is in
 * force, later ones of the same or an older number are not. */
HVDP_EXPORT int32_t hvdp_channel_decide(hvdp_channel* channel, uint64_t number,
                                        const hvdp_mode* mode, const int32_t* excluded,
                                        int32_t count, int32_t drop);

typedef struct {
  uint64_t rounds;        /* published here */
  uint64_t full_rounds;   /* of these, with a contribution of every rank */
  uint64_t flushes;       /* of these, the ends of flushes */
  uint64_t contributions; /* in them, all ranks */
  uint64_t deposits;      /* of this rank */
  uint64_t late_deposits; /* of this rank, with tau > 0 */
  uint64_t skipped;       /* of this rank, not finite */
  uint64_t missed;        /* results overwritten unseen (HVDP_LATEST only) */
  int32_t lag;
  int32_t largest_lag;
  double blocked_seconds;     /* user thread in wait */
  double deposit_seconds;     /* user thread copying */
  double contribution_weight; /* sum over all contributions in `rounds` */
  double grace_seconds;       /* in force now; known on rank 0, else -1 */
  hvdp_mode mode;             /* of the last round seen, or as opened */
  uint64_t dropped;           /* of this rank, while it was excluded */
  uint64_t made_without;      /* rounds, while this process did not answer */
  uint64_t deferred;          /* rounds whose sum came later, because a process did not */
} hvdp_channel_stats;
/* compute_seconds: `size` entries (the last call of each rank) or NULL. */
HVDP_EXPORT int32_t hvdp_channel_get_stats(hvdp_channel* channel, hvdp_channel_stats* stats,
                                           double* compute_seconds);

/* By rank (`size` entries), 1 where no round waits for it. */
HVDP_EXPORT int32_t hvdp_channel_excluded(hvdp_channel* channel, int32_t* excluded);

#ifdef __cplusplus
}
#endif

#endif /* HVD_PARTIAL_CAPI_HVD_PARTIAL_H_ */
