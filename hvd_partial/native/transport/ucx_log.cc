// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/ucx_log.h"

#include <ucs/debug/log_def.h>

#include <chrono>
#include <cstdarg>
#include <mutex>

namespace hvd_partial {
namespace {

thread_local bool quiet_here = false;

ucs_log_func_rc_t drop_if_quiet(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                                ucs_log_level_t /*level*/,
                                const ucs_log_component_config_t* /*component*/,
                                const char* /*message*/, va_list /*arguments*/) {
  return quiet_here ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

ucs_log_func_rc_t drop_if_too_many(const char* file, unsigned line, const char* /*function*/,
                                   ucs_log_level_t level,
                                   const ucs_log_component_config_t* /*component*/,
                                   const char* /*message*/, va_list /*arguments*/) {
  // Whoever asks for more than warnings wants all of them.
  if (level != UCS_LOG_LEVEL_ERROR && level != UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_CONTINUE;
  static std::mutex* const mutex = new std::mutex;  // UCX prints until the process ends
  static PrintLimit* const limit = new PrintLimit;
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const std::lock_guard<std::mutex> lock(*mutex);
  return limit->admits(file, line, now) ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

UcxQuiet::UcxQuiet(bool wanted) : wanted_(wanted), before_(quiet_here) {
  if (!wanted_) return;
  quiet_here = true;
  ucs_log_push_handler(drop_if_quiet);
}

UcxQuiet::~UcxQuiet() {
  if (!wanted_) return;
  ucs_log_pop_handler();
  quiet_here = before_;
}

void limit_ucx_log() {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(drop_if_too_many); });
}

bool PrintLimit::admits(const char* file, unsigned line, double now) {
  std::size_t i = 0;
  while (i + 1 < kPlaces && places_[i].file != nullptr &&
         (places_[i].file != file || places_[i].line != line)) {
    ++i;
  }
  Place& place = places_[i];
  if (place.file == nullptr || now >= place.since + kSeconds) place = {file, line, now, 0};
  return place.printed++ < kMost;
}

}  // namespace hvd_partial
