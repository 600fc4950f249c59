// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef HVD_PARTIAL_TRANSPORT_UCX_WORKER_H_
#define HVD_PARTIAL_TRANSPORT_UCX_WORKER_H_

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hvd_partial {

// Names and values of UCX settings, without the "UCX_" prefix.
using UcxSettings = std::vector<std::pair<std::string, std::string>>;

// A UCP context with its one worker. One thread at a time.
class UcxWorker {
 public:
  // `name` and `settings`: see control_options() and bulk_options().
  struct Options {
    std::string name;
    std::uint64_t features = 0;
    UcxSettings settings;
  };

  static Status create(const Options& options, std::unique_ptr<UcxWorker>* worker);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h get() const { return worker_; }
  const std::vector<std::uint8_t>& address() const { return address_; }
  int event_fd() const { return event_fd_; }

  // `on_error(context, endpoint, status)` runs within progress().
  Status open_endpoint(const std::uint8_t* address, ucp_err_handler_cb_t on_error, void* context,
                       ucp_ep_h* endpoint);
  // At once; whatever was under way on it is cancelled.
  void abandon_endpoint(ucp_ep_h endpoint);

  bool progress() { return ucp_worker_progress(worker_) != 0; }
  // Makes event_fd() report what happens from now on. False: something
  // happened already, or UCX cannot tell without progress().
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }

  // "transport/device", as UCX names them.
  std::vector<std::string> transport_names() const;

  // The destructor will find requests that cannot finish; UCX is not to
  // complain about them.
  void expect_leftovers() { leftovers_ = true; }

 private:
  UcxWorker() = default;

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::uint8_t> address_;
  int event_fd_ = -1;
  bool leftovers_ = false;
};

// Connections that carry active messages and report a peer's death.
Status control_options(UcxWorker::Options* options);
// Connections that carry tagged messages as fast as possible.
Status bulk_options(UcxWorker::Options* options);

// What went wrong, in UCX's words.
std::string ucx_text(ucs_status_t status);

}  // namespace hvd_partial

#endif  // HVD_PARTIAL_TRANSPORT_UCX_WORKER_H_
