//! Orders the options of a SYN as Linux does, since middleboxes and conformance tests look at the order.

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;

/// Puts the options of a SYN into Linux's order: MSS, SACK permitted, window scale. Each is padded in front with
/// no-operations to four bytes. Other options, or too little room, leave everything unchanged.
pub(super) fn order_as_linux(options: &mut [u8]) {
    if let Some(ordered) = ordered(options) {
        options.copy_from_slice(&ordered[..options.len()]);
    }
}

fn ordered(options: &[u8]) -> Option<[u8; 40]> {
    let mut found: [Option<&[u8]>; 3] = [None; 3];
    let mut rest = options;
    while let [kind, more @ ..] = rest {
        let at = match *kind {
            END => break,
            NO_OPERATION => {
                rest = more;
                continue;
            }
            MAXIMUM_SEGMENT_SIZE => 0,
            SACK_PERMITTED => 1,
            WINDOW_SCALE => 2,
            _ => return None,
        };
        let len = usize::from(*more.first()?);
        let (option, behind) = rest.split_at_checked(len).filter(|(option, _)| option.len() >= 2)?;
        (found[at], rest) = (Some(option), behind);
    }
    let mut out = [NO_OPERATION; 40];
    let mut end = 0;
    for option in found.into_iter().flatten() {
        end += option.len().next_multiple_of(4);
        out.get_mut(end.checked_sub(option.len())?..end)?.copy_from_slice(option);
    }
    (end == options.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_linux_and_the_size_stays() {
        let check = |options: &[u8], expected: &[u8]| {
            let mut out = options.to_vec();
            order_as_linux(&mut out);
            assert_eq!(out, expected, "{options:?}");
        };
        check(&[2, 4, 5, 180, 3, 3, 7, 4, 2, 0, 0, 0], &[2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7]);
        check(&[2, 4, 5, 180, 3, 3, 7, 0], &[2, 4, 5, 180, 1, 3, 3, 7]);
        check(&[2, 4, 5, 180, 4, 2, 0, 0], &[2, 4, 5, 180, 1, 1, 4, 2]);
        check(&[2, 4, 5, 180], &[2, 4, 5, 180]);
        check(&[], &[]);
        // Unknown or unreadable options stay unchanged.
        for kept in [&[8, 10, 0, 0][..], &[2, 4, 5], &[2], &[2, 9, 0, 0], &[3, 0, 0, 0], &[2, 4, 5, 180, 0, 0, 0, 0]] {
            check(kept, kept);
        }
    }
}
