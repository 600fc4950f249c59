// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/hvd_partial.h"
#include "tensorflow/channel_book.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/op_status.h"

namespace hvd_partial {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Fields of the header vector; hvd_partial/tensorflow/_ops.py has the names.
constexpr int kHeaderFields = 14;

REGISTER_OP("HvdPartialDeposit")
    .Attr("channel: string")
    .Attr("shapes: list(shape) >= 1")
    .Attr("T: list({half, bfloat16, float, double, int32, int64}) >= 1")
    .Input("tensors: T")
    .Output("count: int32")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Adds one contribution to the channel and ends when results wait to be applied.
It occupies no thread while it waits. count: how many there are; 0 if all
contributions of the round were left out as not finite.
)doc");

REGISTER_OP("HvdPartialNext")
    .Attr("channel: string")
    .Attr("shapes: list(shape) >= 1")
    .Attr("T: list({half, bfloat16, float, double, int32, int64}) >= 1")
    .Attr("latest: bool = false")
    .Input("after: int32")
    .Output("tensors: T")
    .Output("header: double")
    .Output("ranks: double")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      std::vector<PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        ShapeHandle handle;
        TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &handle));
        c->set_output(static_cast<int>(i), handle);
      }
      c->set_output(static_cast<int>(shapes.size()), c->Vector(kHeaderFields));
      c->set_output(static_cast<int>(shapes.size()) + 1,
                    c->Matrix(3, InferenceContext::kUnknownDim));
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Takes the oldest result out of the ring. after: orders it behind whatever gives
that. ranks: of each rank contributions, dropped contributions, seconds.
)doc");

REGISTER_OP("HvdPartialBeginFlush")
    .Attr("channel: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return tensorflow::OkStatus(); })
    .Doc("Starts a flush; afterwards HvdPartialWait and HvdPartialNext until flushed.");

REGISTER_OP("HvdPartialWait")
    .Attr("channel: string")
    .Attr("block: bool")
    .Output("count: int32")
    .Output("flushed: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return tensorflow::OkStatus();
    })
    .Doc("Ends when results wait to be applied or a flush has ended; at once if it may not block.");

// Waits for the channel without holding a thread. The engine calls back on its
// progress thread, where no work may be done: the rest runs in TensorFlow's pool.
class ChannelWait {
 public:
  using Finish = std::function<void(std::int32_t available, bool flushed)>;

  // `finish` runs once, or else the context gets the error; then `done`.
  static void start(OpKernelContext* ctx, hvdp_channel* channel, Finish finish,
                    AsyncOpKernel::DoneCallback done) {
    auto wait = std::make_unique<ChannelWait>(ctx, channel, std::move(finish), std::move(done));
    if (wait->try_end()) return;
    const std::int32_t code = hvdp_channel_notify(channel, &ChannelWait::ready, wait.get());
    if (code != HVDP_OK) {
      wait->fail(code);
      return;
    }
    wait.release();  // ready() takes it back; it may have done so already
  }

  ChannelWait(OpKernelContext* ctx, hvdp_channel* channel, Finish finish,
              AsyncOpKernel::DoneCallback done)
      : ctx_(ctx), channel_(channel), finish_(std::move(finish)), done_(std::move(done)) {}

 private:
  static void ready(void* context) {
    auto* wait = static_cast<ChannelWait*>(context);
    wait->ctx_->device()->tensorflow_cpu_worker_threads()->workers->Schedule([wait] {
      const std::unique_ptr<ChannelWait> owned(wait);
      if (!owned->try_end()) owned->fail(HVDP_INTERNAL);
    });
  }

  // False if there is nothing yet.
  bool try_end() {
    std::int32_t available = 0;
    std::int32_t flushed = 0;
    const std::int32_t code = hvdp_channel_wait(channel_, 0.0, &available, &flushed);
    if (code == HVDP_TIMEOUT) return false;
    if (code != HVDP_OK) {
      fail(code);
      return true;
    }
    finish_(available, flushed != 0);
    done_();
    return true;
  }

  void fail(std::int32_t code) {
    ctx_->SetStatus(to_tensorflow(code));
    done_();
  }

  OpKernelContext* ctx_;
  hvdp_channel* channel_;
  Finish finish_;
  AsyncOpKernel::DoneCallback done_;
};

template <typename T>
void set_scalar(OpKernelContext* ctx, int index, T value) {
  Tensor* out = nullptr;
  OP_REQUIRES_OK(ctx, ctx->allocate_output(index, TensorShape({}), &out));
  out->scalar<T>()() = value;
}

class DepositOp : public AsyncOpKernel {
 public:
  explicit DepositOp(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &name_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shapes", &shapes_));
    OP_REQUIRES(ctx, static_cast<int>(shapes_.size()) == ctx->num_inputs(),
                tensorflow::errors::InvalidArgument("shapes: one for each tensor"));
  }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    hvdp_channel* channel = nullptr;
    OP_REQUIRES_OK_ASYNC(ctx, find_channel(name_, &channel), done);
    std::vector<const void*> tensors(ctx->num_inputs());
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const Tensor& tensor = ctx->input(i);
      // The engine knows sizes by what the channel was opened with.
      OP_REQUIRES_ASYNC(ctx, shapes_[i].IsIdenticalTo(tensor.shape()),
                        tensorflow::errors::InvalidArgument(
                            "hvd_partial [INVALID_ARGUMENT]: rank ", hvdp_rank(), ", channel '",
                            name_, "': tensor ", i, " has shape ", tensor.shape().DebugString(),
                            ", the channel was opened with ", shapes_[i].DebugString()),
                        done);
      tensors[i] = tensor.data();
    }
    std::int32_t skipped = 0;
    const std::int32_t code = hvdp_channel_deposit(channel, tensors.data(), -1.0, &skipped);
    OP_REQUIRES_ASYNC(ctx, code == HVDP_OK, to_tensorflow(code), done);
    ChannelBook::instance().update(name_, [skipped](ChannelTotals* totals) {
      ++totals->deposits;
      totals->own_skipped += skipped;
    });
    ChannelWait::start(
        ctx, channel, [ctx](std::int32_t available, bool) { set_scalar(ctx, 0, available); },
        std::move(done));
  }

 private:
  std::string name_;
  std::vector<PartialTensorShape> shapes_;
};

class NextOp : public OpKernel {
 public:
  explicit NextOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &name_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("latest", &latest_));
    std::vector<PartialTensorShape> shapes;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shapes", &shapes));
    for (const PartialTensorShape& shape : shapes) {
      TensorShape full;
      OP_REQUIRES(ctx, shape.AsTensorShape(&full),
                  tensorflow::errors::InvalidArgument("shapes: must be fully known"));
      shapes_.push_back(full);
    }
  }

  void Compute(OpKernelContext* ctx) override {
    hvdp_channel* channel = nullptr;
    OP_REQUIRES_OK(ctx, find_channel(name_, &channel));
    hvdp_round_header header{};
    OP_REQUIRES_OK(ctx, to_tensorflow(hvdp_channel_header(channel, 0, &header)));
    const int size = hvdp_size();
    std::vector<std::int32_t> of_rank(size, 0), dropped_of(size, 0);
    std::vector<double> seconds_of(size, 0);
    OP_REQUIRES_OK(ctx, to_tensorflow(hvdp_channel_header_ranks(channel, 0, of_rank.data(),
                                                                seconds_of.data())));
    OP_REQUIRES_OK(ctx, to_tensorflow(hvdp_channel_header_dropped(channel, 0, dropped_of.data())));
    std::vector<void*> tensors(shapes_.size());
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      Tensor* out = nullptr;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(static_cast<int>(i), shapes_[i], &out));
      tensors[i] = out->data();
    }
    OP_REQUIRES_OK(ctx, to_tensorflow(hvdp_channel_read(channel, 0, tensors.data())));
    const int own = of_rank[hvdp_rank()];
    const int own_dropped = dropped_of[hvdp_rank()];
    OP_REQUIRES_OK(ctx, to_tensorflow(hvdp_channel_release(channel, 1)));
    ChannelBook::instance().update(name_, [&](ChannelTotals* totals) {
      note(header, own, totals);
      totals->own_dropped += own_dropped;
    });

    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(static_cast<int>(shapes_.size()),
                                             TensorShape({kHeaderFields}), &out));
    auto fields = out->vec<double>();
    fields(0) = static_cast<double>(header.round);
    fields(1) = header.mode.kind;
    fields(2) = header.mode.quorum;
    fields(3) = header.contributions;
    fields(4) = header.contributors;
    fields(5) = header.skipped;
    fields(6) = header.included;
    fields(7) = header.flush;
    fields(8) = header.weight;
    fields(9) = header.divisor;
    fields(10) = static_cast<double>(header.total_contributions);
    fields(11) = own;
    fields(12) = size;
    fields(13) = header.dropped;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(static_cast<int>(shapes_.size()) + 1,
                                             TensorShape({3, size}), &out));
    auto ranks = out->matrix<double>();
    for (int rank = 0; rank < size; ++rank) {
      ranks(0, rank) = of_rank[rank];
      ranks(1, rank) = dropped_of[rank];
      ranks(2, rank) = seconds_of[rank];
    }
  }

 private:
  void note(const hvdp_round_header& header, int own, ChannelTotals* totals) const {
    ++totals->results;
    totals->skipped += header.skipped;
    totals->contributions = static_cast<std::int64_t>(header.total_contributions);
    if (!latest_) {
      totals->own_included += own;
    } else if (header.included != 0) {
      // Results between may have been overwritten, with contributions of ours in them.
      totals->own_included = totals->deposits - totals->own_skipped - totals->own_dropped;
    }
  }

  std::string name_;
  bool latest_ = false;
  std::vector<TensorShape> shapes_;
};

class BeginFlushOp : public OpKernel {
 public:
  explicit BeginFlushOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &name_));
  }
  void Compute(OpKernelContext* ctx) override {
    hvdp_channel* channel = nullptr;
    OP_REQUIRES_OK(ctx, find_channel(name_, &channel));
    OP_REQUIRES_OK(ctx, to_tensorflow(hvdp_channel_begin_flush(channel)));
  }

 private:
  std::string name_;
};

class WaitOp : public AsyncOpKernel {
 public:
  explicit WaitOp(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &name_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("block", &block_));
  }
  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    hvdp_channel* channel = nullptr;
    OP_REQUIRES_OK_ASYNC(ctx, find_channel(name_, &channel), done);
    if (block_) {
      ChannelWait::start(
          ctx, channel,
          [ctx, this](std::int32_t available, bool flushed) { answer(ctx, available, flushed); },
          std::move(done));
      return;
    }
    std::int32_t available = 0;
    std::int32_t flushed = 0;
    const std::int32_t code = hvdp_channel_wait(channel, 0.0, &available, &flushed);
    if (code != HVDP_TIMEOUT) OP_REQUIRES_OK_ASYNC(ctx, to_tensorflow(code), done);
    answer(ctx, available, flushed != 0);
    done();
  }

 private:
  void answer(OpKernelContext* ctx, std::int32_t available, bool flushed) {
    if (flushed) {
      ChannelBook::instance().update(name_, [](ChannelTotals* totals) { ++totals->flushes; });
    }
    set_scalar(ctx, 0, available);
    set_scalar(ctx, 1, flushed);
  }

  std::string name_;
  bool block_ = true;
};

REGISTER_KERNEL_BUILDER(Name("HvdPartialDeposit").Device(tensorflow::DEVICE_CPU), DepositOp);
REGISTER_KERNEL_BUILDER(Name("HvdPartialNext").Device(tensorflow::DEVICE_CPU), NextOp);
REGISTER_KERNEL_BUILDER(Name("HvdPartialBeginFlush").Device(tensorflow::DEVICE_CPU), BeginFlushOp);
REGISTER_KERNEL_BUILDER(Name("HvdPartialWait").Device(tensorflow::DEVICE_CPU), WaitOp);

}  // namespace
}  // namespace hvd_partial
