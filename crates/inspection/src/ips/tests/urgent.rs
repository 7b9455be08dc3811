//! Urgent data: rules see what a program on Linux reads, or the segment ends.

use super::*;

const ACK_URG: u8 = 0x30;
const UNSURE: &str = "urgent data that may be read either way";

/// Segments of the client: offset, urgent pointer, bytes. `passed`: how many of them; `ended`: frames by reason.
fn check_urgent(segments: &[(i64, Option<u16>, &str)], more: &[(&str, &str)], passed: u64, ended: &[(&str, u64)]) {
    let mut conversation = talk();
    for (at, pointer, payload) in segments {
        let frame = conversation.segment(0, *at, pointer.map_or(PSH_ACK, |_| ACK_URG), payload.as_bytes());
        let mut frame = frame.clone();
        frame[52..54].copy_from_slice(&pointer.unwrap_or(0).to_be_bytes());
        conversation.push(frame);
    }
    check(&conversation, more, 3 + passed, ended);
}

#[test]
fn an_urgent_byte_does_not_hide_an_attack() {
    let stopped = [("stopped by a rule", 1)];
    // The carrier of the byte says so itself.
    for segments in [
        &[(0, Some(3), "atXtack")][..],
        &[(0, Some(0), "Xattack")],
        &[(0, None, "att"), (3, Some(0), "Xack")],
        &[(0, Some(4), "attX"), (4, None, "ack")],
        &[(0, Some(5), "at"), (2, Some(3), "taXck")],
        &[(0, Some(3), ""), (0, Some(3), "atXtack")],
        &[(3, Some(1), "Xack"), (0, None, "att")],
        &[(0, Some(9000), "attack")],
    ] {
        check_urgent(segments, &[], segments.len() as u64 - 1, &stopped);
        check_urgent(segments, &[("fail", "open")], segments.len() as u64 - 1, &stopped);
    }
    check_urgent(&[(0, Some(3), "atXtack")], &[("urgent", "inline")], 1, &[]);
    check_urgent(&[(0, Some(3), "attack")], &[("urgent", "inline")], 0, &stopped);
    check_urgent(&[(0, Some(3), "attack")], &[], 1, &[]);
}

/// What decides is the time at which the receiver's program reads, or a frame that is lost behind the filter.
#[test]
fn urgent_data_that_may_be_read_either_way_ends() {
    let ended = [(UNSURE, 1)];
    for segments in [
        // A second urgent byte: the first one is read where the program was late.
        &[(0, Some(3), "abX"), (3, Some(3), "cdY")][..],
        // The carrier, or the copy that comes again, says nothing or something else.
        &[(0, Some(5), "ab"), (2, None, "cdXe")],
        &[(0, Some(5), "ab"), (2, Some(9), "cdXe")],
        &[(0, Some(3), ""), (0, None, "abXcd")],
        &[(0, Some(3), "abXcd"), (0, None, "abXcd")],
        &[(0, None, "abXcd"), (0, Some(3), "abXcd")],
        &[(0, Some(3), "abXcd"), (0, Some(2), "abXcd")],
    ] {
        check_urgent(segments, &[], segments.len() as u64 - 1, &ended);
        check_urgent(segments, &[("fail", "open")], segments.len() as u64, &[]);
        check_urgent(segments, &[("urgent", "inline")], segments.len() as u64, &[]);
    }
    // The same again is no question.
    check_urgent(&[(0, Some(3), "abXcd"), (0, Some(3), "abXcd")], &[], 2, &[]);
}
