// neighbours.hpp - an operator of each element and the one before it; the first stays as it is.  The loops are
// those of transform.hpp, on the array and on the same array from its second element on.
//
//   km::neighbours<Op, First, km::arg<T, pattern>, km::arg<R, pattern>>::run(call, op, first)
//
// Operands: the elements and the results, of one dimension, which have no byte in common.
#pragma once
#include "transform.hpp"

namespace km {

template <class Op, class First, class X, class To> struct neighbours {
  static KM_INL void run(const Call* call, const Op& op, const First& first) {
    const Operand &x = call->operands[0], &to = call->operands[1];
    const i64 x_step = x.strides[0], to_step = to.strides[0], rest = call->shape[0] - 1;
    element<typename To::type>::store(to.data, first(element<typename X::type>::load(x.data)));
    if (rest < 1) return;
    const Operand moved[] = {
        {x.data + x_step, x.strides}, {x.data, x.strides}, {to.data + to_step, to.strides}};
    Call inner = *call;
    inner.shape = &rest, inner.operands = moved;
    transform<Op, in<X, X>, out<To>>::run(&inner, op);
  }
};

}  // namespace km
