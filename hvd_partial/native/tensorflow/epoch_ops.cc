// Copyright 2026 The hvd_partial authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <string>

#include "capi/hvd_partial.h"
#include "tensorflow/channel_book.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/epoch_gate.h"

namespace hvd_partial {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

constexpr int kEpochFields = 3;
constexpr int kProgressFields = 7;

REGISTER_OP("HvdPartialEpochBegin")
    .Attr("channel: string")
    .Attr("gate: int")
    .Attr("steps: int >= 1")
    .Attr("passes: int >= 1 = 1")
    .Output("epoch: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(kEpochFields));
      return tensorflow::OkStatus();
    })
    .Doc("Where an epoch of hvd_partial.tensorflow.data.by_contributions begins.");

REGISTER_OP("HvdPartialEpochOpen")
    .Attr("channel: string")
    .Attr("gate: int")
    .Attr("steps: int >= 1")
    .Attr("passes: int >= 1 = 1")
    .Input("epoch: int64")
    .Input("handed_out: int64")
    .Output("open: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return tensorflow::OkStatus();
    })
    .Doc("Whether another batch is due in that epoch.");

REGISTER_OP("HvdPartialEpochDue")
    .Attr("channel: string")
    .Attr("gate: int")
    .Output("due: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return tensorflow::OkStatus();
    })
    .Doc("Whether the training loop is to begin another batch of the present epoch.");

REGISTER_OP("HvdPartialProgress")
    .Attr("channel: string")
    .Output("totals: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(kProgressFields));
      return tensorflow::OkStatus();
    })
    .Doc("Deposits, own skipped, own included, contributions, skipped, results, flushes.");

class EpochKernel : public OpKernel {
 public:
  explicit EpochKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &channel_));
    tensorflow::int64 gate = 0, steps = 1, passes = 1;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("gate", &gate));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("steps", &steps));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("passes", &passes));
    gate_ = gate;
    plan_.steps = steps;
    plan_.passes = passes;
  }

 protected:
  // The size is that of the present engine, not of the one at trace time.
  bool plan(OpKernelContext* ctx, EpochGate::Plan* plan) const {
    *plan = plan_;
    plan->size = hvdp_size();
    if (plan->size >= 1) return true;
    ctx->CtxFailure(tensorflow::errors::FailedPrecondition(
        "hvd_partial [NOT_CONNECTED]: data.by_contributions needs the engine; call "
        "hvd_partial.tensorflow.init() before training"));
    return false;
  }
  ChannelTotals now() const { return ChannelBook::instance().read(channel_); }

  std::string channel_;
  std::int64_t gate_ = 0;

 private:
  EpochGate::Plan plan_;
};

class EpochBeginOp : public EpochKernel {
 public:
  using EpochKernel::EpochKernel;
  void Compute(OpKernelContext* ctx) override {
    EpochGate::Plan plan;
    if (!this->plan(ctx, &plan)) return;
    const EpochGate::Epoch epoch = EpochGate::instance().begin(gate_, plan, now());
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({kEpochFields}), &out));
    auto fields = out->vec<std::int64_t>();
    fields(0) = epoch.progress;
    fields(1) = epoch.settled;
    fields(2) = epoch.end;
  }
};

class EpochOpenOp : public EpochKernel {
 public:
  using EpochKernel::EpochKernel;
  void Compute(OpKernelContext* ctx) override {
    EpochGate::Plan plan;
    if (!this->plan(ctx, &plan)) return;
    OP_REQUIRES(ctx, ctx->input(0).shape() == TensorShape({kEpochFields}),
                tensorflow::errors::InvalidArgument("epoch: must be what HvdPartialEpochBegin "
                                                    "gave"));
    OP_REQUIRES(ctx, ctx->input(1).NumElements() == 1,
                tensorflow::errors::InvalidArgument("handed_out: must be a scalar"));
    const auto fields = ctx->input(0).vec<std::int64_t>();
    const EpochGate::Epoch epoch{fields(0), fields(1), fields(2)};
    const std::int64_t handed_out = ctx->input(1).flat<std::int64_t>()(0);
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &out));
    out->scalar<bool>()() = EpochGate::instance().open(gate_, plan, epoch, handed_out, now());
  }
};

class EpochDueOp : public OpKernel {
 public:
  explicit EpochDueOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &channel_));
    tensorflow::int64 gate = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("gate", &gate));
    gate_ = gate;
  }
  void Compute(OpKernelContext* ctx) override {
    std::int64_t published = 0;
    hvdp_channel_stats stats{};
    const std::string name = ChannelBook::instance().resolve(channel_);
    hvdp_channel* channel = name.empty() ? nullptr : hvdp_channel_find(name.c_str());
    if (channel != nullptr && hvdp_channel_get_stats(channel, &stats, nullptr) == HVDP_OK) {
      published = static_cast<std::int64_t>(stats.contributions);
    }
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &out));
    out->scalar<bool>()() =
        EpochGate::instance().due(gate_, published, ChannelBook::instance().read(channel_));
  }

 private:
  std::string channel_;
  std::int64_t gate_ = 0;
};

class ProgressOp : public OpKernel {
 public:
  explicit ProgressOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channel", &channel_));
  }
  void Compute(OpKernelContext* ctx) override {
    const ChannelTotals totals = ChannelBook::instance().read(channel_);
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({kProgressFields}), &out));
    auto fields = out->vec<std::int64_t>();
    fields(0) = totals.deposits;
    fields(1) = totals.own_skipped;
    fields(2) = totals.own_included;
    fields(3) = totals.contributions;
    fields(4) = totals.skipped;
    fields(5) = totals.results;
    fields(6) = totals.flushes;
  }

 private:
  std::string channel_;
};

REGISTER_KERNEL_BUILDER(Name("HvdPartialEpochBegin").Device(tensorflow::DEVICE_CPU), EpochBeginOp);
REGISTER_KERNEL_BUILDER(Name("HvdPartialEpochOpen").Device(tensorflow::DEVICE_CPU), EpochOpenOp);
REGISTER_KERNEL_BUILDER(Name("HvdPartialEpochDue").Device(tensorflow::DEVICE_CPU), EpochDueOp);
REGISTER_KERNEL_BUILDER(Name("HvdPartialProgress").Device(tensorflow::DEVICE_CPU), ProgressOp);

}  // namespace
}  // namespace hvd_partial
