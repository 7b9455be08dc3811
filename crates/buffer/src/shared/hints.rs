//! Hints to the processor: lines that will be needed soon are asked for, so that they are here when their turn comes. A hint
//! changes nothing but time, cannot fault wherever it points, and is nothing on processors that have none.

/// Asks for the line at an address that will be read.
#[inline]
pub fn will_read(_address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the instruction never faults and gives nothing back, also where nothing is mapped; it is part of SSE, which
    // every processor of this architecture has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(_address.cast());
    }
}

/// Asks for the line at an address that will be written, to be ours alone.
#[inline]
pub fn will_write(_address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: a hint, which changes nothing and cannot fault; processors without it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) _address, options(nostack, preserves_flags));
    }
}
