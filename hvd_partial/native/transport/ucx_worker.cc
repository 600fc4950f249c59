// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include "transport/ucx_worker.h"

#include <dlfcn.h>
#include <pthread.h>
#include <ucs/debug/debug.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "transport/interfaces.h"
#include "transport/ucx_log.h"

namespace hvd_partial {
namespace {

Status failed(const std::string& what, ucs_status_t status) {
  return Status(ErrorCode::kTransport, "UCX: " + what + " failed: " + ucx_text(status));
}

// UCX starts a thread of its own. Signals are for the user's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// When UCX is loaded it takes SIGHUP for a debugging aid that stops the
// process, even if SIGHUP was ignored (nohup). Gives it back.
void release_hangup_signal() {
  if (std::getenv("UCX_DEBUG_SIGNO") != nullptr) return;
  struct sigaction action{};
  Dl_info handler{};
  Dl_info ucs{};
  if (sigaction(SIGHUP, nullptr, &action) != 0) return;
  const bool found = dladdr(reinterpret_cast<void*>(action.sa_sigaction), &handler) != 0 &&
                     dladdr(reinterpret_cast<void*>(&ucs_debug_disable_signal), &ucs) != 0;
  if (found && handler.dli_fbase == ucs.dli_fbase) ucs_debug_disable_signal(SIGHUP);
}

// Adds the setting that restricts UCX to the network interfaces the user chose.
Status add_interfaces(UcxSettings* settings) {
  std::string chosen;
  if (Status status = chosen_interfaces(existing_interfaces(), &chosen); !status.ok()) {
    return status;
  }
  if (!chosen.empty()) settings->emplace_back("NET_DEVICES", chosen);
  return {};
}

// Chosen by us, unlike the rest: the user's UCX_ variable does not count.
bool overrides_environment(const std::string& setting) {
  return setting == "NET_DEVICES" || setting == "TLS";
}

void add_common(UcxSettings* settings) {
  // The registration cache would patch munmap() and its like in the whole
  // process, under TensorFlow's feet, and buys nothing: neither shared memory
  // nor TCP registers memory.
  settings->emplace_back("RCACHE_ENABLE", "n");
  // connect() to a host that does not answer blocks for about half a minute
  // instead of two.
  settings->emplace_back("TCP_SYN_CNT", "4");
}

}  // namespace

std::string ucx_text(ucs_status_t status) { return ucs_status_string(status); }

Status control_options(UcxWorker::Options* options) {
  *options = {};
  options->name = "control";
  options->features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  add_common(&options->settings);
  // TCP, because the kernel closes the connections of a killed process: that
  // is how its peers learn of it, even when idle. (If a whole host is gone,
  // TCP keepalive notices after about 16 s.)
  options->settings.emplace_back("TLS", "tcp");
  return add_interfaces(&options->settings);
}

Status bulk_options(UcxWorker::Options* options) {
  *options = {};
  options->name = "bulk";
  options->features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  add_common(&options->settings);
  // Our buffers are in host memory: don't touch GPUs. CMA does not go with the
  // error handling below, so don't let it try to read the peers' memory, either.
  if (std::getenv("UCX_TLS") == nullptr) {
    options->settings.emplace_back("TLS", "^cma,cuda,rocm,ze");
  }
  // Only endpoints with error handling can be abandoned while a peer is dead
  // or stopped; UCX leaves shared memory out of them unless told otherwise.
  options->settings.emplace_back("POSIX_ERROR_HANDLING", "y");
  options->settings.emplace_back("SYSV_ERROR_HANDLING", "y");
  // Death is noticed on the control connections.
  options->settings.emplace_back("KEEPALIVE_INTERVAL", "inf");
  return add_interfaces(&options->settings);
}

Status UcxWorker::create(const Options& options, std::unique_ptr<UcxWorker>* worker) {
  release_hangup_signal();
  limit_ucx_log();
  const SignalsBlocked blocked;
  std::unique_ptr<UcxWorker> result(new UcxWorker());

  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("reading the UCX_ environment variables", status);
  for (const auto& [name, value] : options.settings) {
    const bool user_set = std::getenv(("UCX_" + name).c_str()) != nullptr;
    if (user_set && !overrides_environment(name)) continue;
    status = ucp_config_modify(config, name.c_str(), value.c_str());
    if (status == UCS_OK) continue;
    ucp_config_release(config);
    return failed("setting " + name + "=" + value, status);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = options.features;
  params.name = options.name.c_str();
  status = ucp_init(&params, config, &result->context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return failed("opening " + options.name + " transports (is a network interface up?)", status);
  }

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_NAME;
  // Set up by one thread, then used by another, never by two at a time.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  worker_params.name = options.name.c_str();
  status = ucp_worker_create(result->context_, &worker_params, &result->worker_);
  if (status != UCS_OK) return failed("creating the " + options.name + " worker", status);
  status = ucp_worker_get_efd(result->worker_, &result->event_fd_);
  if (status != UCS_OK) return failed("getting the event descriptor", status);

  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  status = ucp_worker_get_address(result->worker_, &address, &size);
  if (status != UCS_OK) return failed("getting the address", status);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(address);
  result->address_.assign(bytes, bytes + size);
  ucp_worker_release_address(result->worker_, address);

  *worker = std::move(result);
  return {};
}

UcxWorker::~UcxWorker() {
  const UcxQuiet quiet(leftovers_);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Status UcxWorker::open_endpoint(const std::uint8_t* address, ucp_err_handler_cb_t on_error,
                                void* context, ucp_ep_h* endpoint) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = context;
  const ucs_status_t status = ucp_ep_create(worker_, &params, endpoint);
  if (status != UCS_OK) {
    *endpoint = nullptr;
    return failed("opening an endpoint", status);
  }
  return {};
}

void UcxWorker::abandon_endpoint(ucp_ep_h endpoint) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &params);
  // UCX finishes a request that was freed by itself.
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
}

std::vector<std::string> UcxWorker::transport_names() const {
  // UCP has no call for this, only a text for people, with one line a device:
  // "#      resource 1  :  md 0  dev 1  flags -- tcp/lo".
  std::vector<std::string> names;
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return names;
  ucp_context_print_info(context_, stream);
  std::fclose(stream);
  std::istringstream lines(std::string(text, size));
  std::free(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" resource ") == std::string::npos) continue;
    const std::size_t begin = line.rfind(' ', line.find_last_not_of(' '));
    names.push_back(line.substr(begin + 1, line.find_last_not_of(' ') - begin));
  }
  return names;
}

}  // namespace hvd_partial
