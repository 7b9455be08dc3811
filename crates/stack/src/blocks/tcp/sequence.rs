//! Makes smoltcp start with the initial sequence number of the Flow Manager.
//!
//! smoltcp draws that number from its own generator, sPCG32, and only `Config::random_seed` influences it. Each draw
//! is one step of a linear congruential generator, which can be undone. This module goes back from the wanted number
//! to the seed. If a smoltcp release draws differently, the tests of wire bytes fail.

/// One step of smoltcp's generator: `state * FACTOR + SUMMAND`.
const FACTOR: u64 = 0xbb2e_fcec_3c39_611d;
const SUMMAND: u64 = 0x7590_ef39;
/// `FACTOR * INVERSE` is 1 in 64 bits.
const INVERSE: u64 = inverse(FACTOR);

/// The inverse of an odd number modulo 2^64, by Newton's method. An odd number is its own inverse in three bits, and
/// each round doubles the correct bits.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut round = 0;
    while round < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found
}

const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

/// The state before a step.
const fn before(state: u64) -> u64 {
    state.wrapping_sub(SUMMAND).wrapping_mul(INVERSE)
}

/// The result of a draw: the state shifted by 29 less its top three bits.
const fn drawn(state: u64) -> u32 {
    (state >> (29 - (state >> 61))) as u32
}

/// The seed whose second draw is `number`. The first draw is the identification of IPv4 packets. `Interface::new`
/// draws that again if it is 0, so the seed avoids this.
pub(super) fn seed(number: u32) -> u64 {
    // With 0 in the top three bits the draw shifts by 29, which leaves the lower 29 bits free.
    let states = (0_u64..1 << 29).map(|free| u64::from(number) << 29 | free);
    let good = |second: &u64| {
        let first = drawn(before(*second));
        (first ^ first >> 16) as u16 != 0
    };
    let second = states.into_iter().find(good).unwrap_or(0);
    before(before(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_draw_is_the_number_and_the_first_one_is_not_drawn_again() {
        let step = |state: u64| state.wrapping_mul(FACTOR).wrapping_add(SUMMAND);
        for at in 0..100_000_u32 {
            let number = at.wrapping_mul(0x9e37_79b9);
            let first = step(seed(number));
            assert_ne!((drawn(first) ^ drawn(first) >> 16) as u16, 0);
            assert_eq!(drawn(step(first)), number);
        }
    }
}
