// topk.hpp - the first k of each row in the order of sort_keys.hpp, with their places; of equal ones the earliest.
//
//   km::first_of<T>::run(call)
//
// Operands: elements; values, places (i64), sorted: contiguous rows.  shape is (rows, length, k); flags: descending << 1.
// A threshold lets most of the elements pass at the speed of reading.
#pragma once
#include "sort_merge.hpp"

namespace km {

template <class T> struct first_of {
  typedef bits_of<T> U;
  struct Item {
    U key;
    i64 place;
  };
  struct item_less {
    KM_INL bool operator()(const Item* a, const Item* b) const {
      return a->key < b->key || (a->key == b->key && a->place < b->place);
    }
  };
  static constexpr i64 block = 256, most_ranges = 16, shared_from = 1 << 16;

  // Moves the k smallest to the front.
  static KM_HOT void choose(Item* x, i64 n, i64 k) {
    const item_less less;
    i64 low = 0, high = n - 1;
    while (low < high) {
      const Item pivot = x[low + (high - low) / 2];
      i64 i = low, j = high;
      while (i <= j) {
        while (less(x + i, &pivot)) i++;
        while (less(&pivot, x + j)) j--;
        if (i <= j) {
          const Item swapped = x[i];
          x[i++] = x[j];
          x[j--] = swapped;
        }
      }
      if (k - 1 <= j)
        high = j;
      else if (k - 1 >= i)
        low = i;
      else
        break;
    }
  }
  static KM_INL U key_of(const U* x, i64 i, U flip) { return order<T>::of(x[i]) ^ flip; }

  static KM_HOT bool any_below(const U* x, U flip, U limit) {
    u32 any = 0;
    for (i64 i = 0; i < block; i++) any |= (u32)(key_of(x, i, flip) < limit);
    return any != 0;
  }
  // Fills `held`, of room for 4 k and two blocks, with the first k of a range; returns how many there are.
  static KM_COLD i64 of_range(const U* x, i64 begin, i64 end, U flip, i64 k, Item* held) {
    const i64 room = 4 * k + 2 * block;
    i64 count = 0;
    bool limited = false;
    U limit = 0;
    for (i64 at = begin; at < end; at += block) {
      const i64 last = smaller(at + block, end);
      if (limited && last - at == block && !any_below(x + at, flip, limit)) continue;
      if (count + block > room || (!limited && count >= k)) {
        choose(held, count, k);
        count = k;
        limit = held[0].key;
        for (i64 i = 1; i < k; i++) limit = larger(limit, held[i].key);
        limited = true;
      }
      for (i64 i = at; i < last; i++) {
        const U key = key_of(x, i, flip);
        held[count] = Item{key, i};
        count += !limited || key < limit;
      }
    }
    if (count > k) choose(held, count, k);
    return smaller(count, k);
  }
  static KM_COLD void finish(const T* x, Item* held, i64 count, i64 k, T* value, i64* place, Item* spare) {
    if (count > k) choose(held, count, k);
    const item_less less;
    Item *source = held, *target = spare;
    sort_runs(source, target, k, less);
    for (i64 width = 8; width < k; width *= 2) {
      Item* swapped = source;
      source = target;
      target = swapped;
      for (i64 i = 0; i < k; i += 2 * width) {
        const i64 half = smaller(width, k - i), both = smaller(2 * width, k - i);
        merge_two(source + i, half, source + i + half, both - half, target + i, less);
      }
    }
    for (i64 i = 0; i < k; i++) {
      value[i] = x[target[i].place];
      place[i] = target[i].place;
    }
  }
  static KM_COLD void run(const Call* call) {
    const i64 rows = call->shape[0], n = call->shape[1], k = call->shape[2];
    const U flip = call->flags & 2 ? (U)~(U)0 : (U)0;
    const T* x = (const T*)call->operands[0].data;
    T* value = (T*)call->operands[1].data;
    i64* place = (i64*)call->operands[2].data;
    const i64 room = 4 * k + 2 * block;
    const bool shared = n >= shared_from && call->threads > 1;
    const i64 ranges = shared ? smaller((i64)call->threads * 2, most_ranges) : 1;
    Pieces pieces{(char*)call->workspace};
    const i64 lots = shared ? 1 : smaller(rows, most_ranges);
    Item* held = pieces.template take<Item>(larger(ranges, lots) * room);
    Item* spare = pieces.template take<Item>(larger(ranges, lots) * room);
    if (shared) {
      for (i64 r = 0; r < rows; r++) {
        i64 count[most_ranges];
        auto body = [&](i64 low, i64 high) {
          for (i64 q = low; q < high; q++)
            count[q] = of_range((const U*)(x + r * n), n * q / ranges, n * (q + 1) / ranges, flip, k, held + q * room);
        };
        for_tasks(call, ranges, body);
        i64 total = count[0];
        for (i64 q = 1; q < ranges; q++)
          for (i64 i = 0; i < count[q]; i++) held[total++] = held[q * room + i];
        finish(x + r * n, held, total, k, value + r * k, place + r * k, spare);
      }
      return;
    }
    auto body = [&](i64 low, i64 high) {
      for (i64 lot = low; lot < high; lot++)
        for (i64 r = rows * lot / lots; r < rows * (lot + 1) / lots; r++) {
          Item* mine = held + lot * room;
          const i64 count = of_range((const U*)(x + r * n), 0, n, flip, k, mine);
          finish(x + r * n, mine, count, k, value + r * k, place + r * k, spare + lot * room);
        }
    };
    for_tasks(call, lots, body);
  }
};

}  // namespace km
