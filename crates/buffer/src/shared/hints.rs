//! Hints to the processor: fetch cache lines that will be needed soon. A hint saves time only and cannot fault,
//! whatever its address. On processors without hints it does nothing.

/// Fetches the line at an address that will be read.
#[inline]
pub fn will_read(_address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the instruction never faults and gives nothing back, also where nothing is mapped. It is part of SSE,
    // which every processor of this architecture has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(_address.cast());
    }
}

/// Fetches the line at an address that will be written, for this core alone.
#[inline]
pub fn will_write(_address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: a hint that changes nothing and cannot fault; processors without it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) _address, options(nostack, preserves_flags));
    }
}
