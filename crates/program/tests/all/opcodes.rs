//! One row for each opcode: its effect on A and X, on packets with and without the bytes that it loads.

use crate::plain;
use program::Interpreter;
use program::cbpf::Instruction;

const PACKET: [u8; 8] = [0x01, 0x82, 0x03, 0x84, 0xf5, 0x06, 0x00, 0x45];
const WIRE_LEN: u32 = 1500;

const fn i(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

/// Sets A and X, runs the code, and checks A.
fn check(a: u32, x: u32, code: &[Instruction], expected: u32) {
    let mut whole = vec![i(0x00, a), i(0x01, x)];
    whole.extend_from_slice(code);
    whole.push(i(0x16, 0));
    assert_eq!(plain::run(&whole, &PACKET, WIRE_LEN), expected, "oracle, A={a} X={x} {code:?}");
    let interpreter = Interpreter::from_cbpf(&whole).unwrap();
    assert_eq!(interpreter.run(&PACKET, WIRE_LEN), expected, "A={a} X={x} {code:?}");
}

#[test]
fn loads() {
    const FAILS: u32 = 0;
    let big = u32::MAX;
    let rows = [
        // a, x, code, k, expected A
        (9, 9, 0x00, 77, 77),
        (9, 9, 0x20, 0, 0x0182_0384),
        (9, 9, 0x20, 4, 0xf506_0045),
        (9, 9, 0x20, 5, FAILS),
        (9, 9, 0x20, 0xffdf_ffff, FAILS),
        (9, 9, 0x28, 6, 0x0045),
        (9, 9, 0x28, 7, FAILS),
        (9, 9, 0x30, 7, 0x45),
        (9, 9, 0x30, 8, FAILS),
        (9, 1, 0x40, 2, 0x84f5_0600),
        (9, 4, 0x40, 1, FAILS),
        (9, big, 0x40, 1, FAILS),
        (9, 3, 0x48, 3, 0x0045),
        (9, 4, 0x48, 3, FAILS),
        (9, 2, 0x50, 5, 0x45),
        (9, 2, 0x50, 6, FAILS),
        // No wrap-around to the start.
        (9, big, 0x50, 2, FAILS),
        (9, 2, 0x50, big, FAILS),
        (9, 9, 0x80, 0, WIRE_LEN),
        // Memory starts at 0.
        (9, 9, 0x60, 15, 0),
    ];
    for (a, x, code, k, expected) in rows {
        check(a, x, &[i(code, k)], expected);
    }
    // X, copied to A.
    for (code, k, expected) in
        [(0x01, 5, 5), (0x81, 0, WIRE_LEN), (0xb1, 7, 20), (0xb1, 1, 8), (0xb1, 8, FAILS), (0x61, 3, 0)]
    {
        check(9, 9, &[i(code, k), i(0x87, 0)], expected);
    }
    check(9, 8, &[i(0x02, 3), i(0x00, 1), i(0x60, 3)], 9);
    check(9, 8, &[i(0x03, 3), i(0x60, 3)], 8);
    check(9, 8, &[i(0x02, 3), i(0x61, 3), i(0x87, 0)], 9);
    check(9, 8, &[i(0x07, 0), i(0x00, 1), i(0x87, 0)], 9);
}

#[test]
fn arithmetic() {
    let big = u32::MAX;
    let rows = [
        (0x04, 5, 7, 12),
        (0x04, big, 2, 1),
        (0x14, 5, 7, big - 1),
        (0x24, 0x1_0001, 0x1_0000, 0x1_0000),
        (0x34, 7, 2, 3),
        (0x34, big, 2, 0x7fff_ffff),
        (0x94, 7, 4, 3),
        (0x44, 5, 6, 7),
        (0x54, 5, 6, 4),
        (0xa4, 5, 6, 3),
        (0x64, 1, 31, 0x8000_0000),
        (0x64, 3, 31, 0x8000_0000),
        (0x74, big, 31, 1),
    ];
    for (code, a, operand, expected) in rows {
        check(a, 3, &[i(code, operand)], expected);
        check(a, operand, &[i(code | 8, 99)], expected);
    }
    // Only X can hold these values.
    for (code, operand) in [(0x3c, 0), (0x9c, 0), (0x6c, 32), (0x7c, 32), (0x6c, big), (0x7c, 33)] {
        check(5, operand, &[i(code, 0)], 0);
    }
    check(1, 0, &[i(0x84, 0)], big);
    check(0, 0, &[i(0x84, 0)], 0);
}

/// Division by 0 ends the run: otherwise A + 1 would be 1.
#[test]
fn division_by_zero_ends_the_run() {
    check(5, 0, &[i(0x3c, 0), i(0x04, 1)], 0);
    check(5, 0, &[i(0x9c, 0), i(0x04, 1)], 0);
}

#[test]
fn jumps() {
    let big = u32::MAX;
    let rows = [
        (0x15, 5, 5, true),
        (0x15, 5, 6, false),
        (0x25, 6, 5, true),
        (0x25, 5, 5, false),
        (0x25, big, 5, true),
        (0x35, 5, 5, true),
        (0x35, 4, 5, false),
        (0x45, 6, 2, true),
        (0x45, 6, 1, false),
        (0x45, 6, 0, false),
    ];
    for (code, a, operand, holds) in rows {
        let expected = if holds { 1 } else { 2 };
        let tail = [i(0x00, 1), i(0x16, 0), i(0x00, 2)];
        for (code, x) in [(code, 99), (code | 8, operand)] {
            let jump = Instruction { code, jt: 0, jf: 2, k: operand };
            check(a, x, &[&[jump][..], &tail].concat(), expected);
        }
    }
    check(1, 1, &[i(0x05, 1), i(0x00, 2), i(0x04, 10)], 11);
}

/// A loop that counts in X may go back 64 times, as in libpcap.
#[test]
fn backward_jumps_are_limited() {
    for limit in [1u32, 64, 65, 66, 1000] {
        let code = [
            i(0x87, 0),
            i(0x04, 1),
            i(0x07, 0),
            Instruction { code: 0x35, jt: 1, jf: 0, k: limit },
            i(0x05, (-5i32).cast_unsigned()),
        ];
        check(0, 0, &code, if limit <= 65 { limit } else { 0 });
    }
}

/// Fields at the edges of the eight bytes of a window, in packets that end there.
#[test]
fn windows_end_where_the_packet_does() {
    for length in 0..24usize {
        let packet: Vec<u8> = (1..=24).take(length).collect();
        for offset in 0..24u32 {
            for code in [0x20u16, 0x28, 0x30] {
                let size: u32 = match code {
                    0x20 => 4,
                    0x28 => 2,
                    _ => 1,
                };
                let value = (offset..offset + size).fold(0, |value, at| value << 8 | (at + 1));
                for k in [value, value + 1, value.wrapping_sub(1)] {
                    for jump in [0x15, 0x25, 0x35, 0x45] {
                        let code = [i(code, offset), Instruction { code: jump, jt: 0, jf: 1, k }, i(6, 1), i(6, 2)];
                        let expected = plain::run(&code, &packet, 0);
                        assert_eq!(expected == 0, offset + size > u32::try_from(length).unwrap());
                        let interpreter = Interpreter::from_cbpf(&code).unwrap();
                        assert_eq!(interpreter.run(&packet, 0), expected, "{length} {code:?}");
                    }
                }
            }
        }
    }
}
