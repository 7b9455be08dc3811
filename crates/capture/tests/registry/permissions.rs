//! Limits on what readers may see, and on what their expressions may cost.

use crate::played::*;
use capture::CaptureErrorKind;
use capture::{Attachment, By, CaptureReader, CaptureRequest, Direction, Mode, Only, Permission};
use program::cbpf::Instruction;
use program::{Compile, CompileError};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Compiles `3` to a program that passes packets whose first byte is 3, `~3` to one that passes all others, and `all`
/// to a long one that passes all; for Ethernet only.
struct FirstBytes;

impl Compile for FirstBytes {
    fn compile(&self, expression: &str, link_type: u16, _: u32) -> Result<Vec<Instruction>, CompileError> {
        if link_type != 1 {
            return Err(CompileError::syntax("there is no first byte"));
        }
        let number = |text: &str| text.parse().expect("a byte");
        Ok(match expression.strip_prefix('~') {
            Some(text) => {
                let mut code = first_byte(number(text));
                code.swap(2, 3);
                code
            }
            None if expression == "all" => long(1 << 13),
            None => first_byte(number(expression)),
        })
    }

    fn describe(&self) -> String {
        "a test's".into()
    }
}

/// Passes all packets, in this number of instructions.
fn long(instructions: u32) -> Vec<Instruction> {
    let at = |code, k| Instruction { code, jt: 0, jf: 0, k };
    // Adds to A, which has no effect.
    (1..instructions).map(|number| at(0x04, number)).chain([at(0x06, 1)]).collect()
}

fn shown(group: u32, text: &str) -> Permission {
    Permission { group, only: Some(Arc::new(Only::new(text, &FirstBytes).unwrap())) }
}

/// Finds the packets that lie in a ring's memory, of whichever reader: gives their first bytes.
fn lies_in(attachment: &Attachment) -> impl Fn() -> Vec<u8> + use<> {
    let file = std::fs::File::from(attachment.fds.areas.data.try_clone().unwrap());
    let bytes = attachment.granted.geometry.ring_bytes as usize;
    move || {
        let mut memory = vec![0; bytes];
        file.read_exact_at(&mut memory, 0).unwrap();
        // Unwritten memory is 0.
        (1..4).filter(|byte| memory.windows(8).any(|run| run == [*byte; 8])).collect()
    }
}

/// Passes packets whose first byte is 1 to `count`; costs `count` instructions.
fn first_bytes(count: u8) -> Vec<Instruction> {
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let tests = (1..=count).map(|byte| at(0x15, count - byte, u8::from(byte == count), byte.into()));
    std::iter::once(at(0x30, 0, 0, 0)).chain(tests).chain([at(0x06, 0, 0, 0x40000), at(0x06, 0, 0, 0)]).collect()
}

#[test]
fn what_a_group_is_not_shown_never_comes_into_its_ring() {
    let (player, registry) = player();
    let permission = shown(5, "3");
    let open = |asked: &CaptureRequest| registry.open(asked, permission.clone()).unwrap();
    let whole = registry.open(&capture_request(), 0).unwrap();
    let plain = open(&capture_request());
    assert_eq!(
        (whole.granted.note.as_str(), plain.granted.note.contains("of `played0` only what `3` passes")),
        ("", true)
    );
    let (all, limited) = (lies_in(&whole), lies_in(&plain));
    let [mut whole_half, mut half] = [(); 2].map(|()| player.halves.lock().unwrap().pop_front().unwrap());
    let mut publish = |numbers: std::ops::Range<u64>| {
        publish(&mut whole_half, numbers.clone());
        publish(&mut half, numbers);
    };
    let reader = |attachment| CaptureReader::new(attachment, None, None).unwrap();
    let mut plain = reader(plain);
    // Whatever more they ask for.
    let mut others = reader(open(&CaptureRequest { program: first_byte(2), ..capture_request() }));
    let mut same = reader(open(&CaptureRequest { program: first_byte(3), ..capture_request() }));
    let mut half_of_it = reader(open(&CaptureRequest { sample: 2, promiscuous: true, ..capture_request() }));
    let mut incoming = reader(open(&CaptureRequest { direction: Direction::In, ..capture_request() }));
    let counting = reader(open(&CaptureRequest { counts: Some(0), ..capture_request() })).that_counts();
    publish(0..400);
    let threes = |numbers: std::ops::Range<u64>| numbers.filter(|n| n % 4 == 3).collect::<Vec<_>>();
    assert_eq!((take(&mut plain), take(&mut same)), (threes(0..400), threes(0..400)));
    assert_eq!(take(&mut half_of_it), (0..400).filter(|n| n % 8 == 3).collect::<Vec<_>>());
    assert_eq!((take(&mut others), take(&mut incoming), counting.counted().packets), (vec![], vec![], 100));
    let ledger = plain.ledger();
    assert_eq!((ledger.seen, ledger.matched, ledger.filtered), (400, 100, 300));
    // With another expression, and with none again.
    for (begins, code) in [(400, first_byte(1)), (500, vec![])] {
        let exchange = registry.exchange(plain.id(), &code).unwrap();
        plain.exchange(exchange, program::Interpreter::from_cbpf(&code).ok());
        publish(begins..begins + 100);
    }
    assert_eq!(take(&mut plain), threes(500..600));
    // A reader that looks back finds packets that other readers of its group wanted.
    let looking_back = CaptureRequest { last_ns: u64::MAX, ..capture_request() };
    let mut late = reader(open(&looking_back));
    assert_eq!((take(&mut late), late.past().whole), (threes(0..600), false));
    registry.keep("played0", By::WhatIsBest, 1 << 20, permission.clone()).unwrap();
    drop((plain, others, same, half_of_it, incoming, counting, late));
    until(|| registry.states().iter().all(|ring| ring.group == 0 || ring.readers.is_empty()), "they are gone");
    publish(600..700);
    let kept = open(&CaptureRequest { keep: true, program: first_byte(2), ..looking_back.clone() });
    publish(700..800);
    let mut late = reader(open(&looking_back));
    assert_eq!((take(&mut late), late.past().whole), (threes(0..800), true));
    let hows: Vec<String> = registry.states().into_iter().map(|ring| ring.device.how).collect();
    assert_eq!(hows, ["by a test", "by a test; only what `3` passes"]);
    assert_eq!((all(), limited()), (vec![1, 2, 3], vec![3]));
    drop((whole, kept));
}

#[test]
fn who_is_shown_a_part_takes_a_part_away() {
    let (player, registry) = player();
    let permission = shown(5, "~2");
    let taking =
        registry.open(&CaptureRequest { mode: Mode::Consume, ..capture_request() }, permission.clone()).unwrap();
    let lies = lies_in(&taking);
    let mut taking = CaptureReader::new(taking, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..40);
    assert_eq!((take(&mut taking), lies()), ((0..40).filter(|n| n % 4 != 2).collect(), vec![1, 3]));
    // Other groups are told that only a part comes; readers of the same group are also told what they may see.
    let told = registry.open(&capture_request(), 0).unwrap().granted.note;
    assert!(told.starts_with("another reader takes away a part of the packets that `played0` receives"), "{told}");
    let told = registry.open(&capture_request(), permission).unwrap().granted.note;
    assert!(told.contains("only what `~2` passes; another reader takes away a part"), "{told}");
}

#[test]
fn what_is_too_much_together_is_for_who_asks_to_decide() {
    let (_player, registry) = player();
    let permission = shown(5, "all");
    let wordy = CaptureRequest { program: long(1 << 14), ..capture_request() };
    assert!(registry.open(&wordy, 0).is_ok(), "it may ask for that much");
    let refused = registry.open(&wordy, permission.clone()).unwrap_err();
    assert!(
        refused.kind == CaptureErrorKind::Cannot && refused.text.contains("together with the policy's `all`"),
        "{refused}"
    );
    until(|| registry.states().is_empty(), "nothing is left");
    let reader = registry.open(&capture_request(), permission).unwrap();
    assert_eq!(registry.exchange(reader.granted.id, &wordy.program).unwrap_err().kind, CaptureErrorKind::Cannot);
    assert!(registry.exchange(reader.granted.id, &first_byte(1)).is_ok());
}

#[test]
fn one_users_expressions_leave_room_for_those_of_others() {
    let (player, registry) = player();
    registry.limit(100);
    let costs = |count| CaptureRequest { program: first_bytes(count), ..capture_request() };
    let refused = |user, asked: &CaptureRequest| {
        let error = registry.open_for(user, asked, user).unwrap_err();
        assert_eq!(error.kind, CaptureErrorKind::Cannot, "{error}");
        error.text
    };
    let (anna, bert, root) = (1000, 1001, 0);
    assert!(
        refused(anna, &costs(76))
            .contains("0 of the 75 instructions that the daemon's policy gives you, and it costs 76")
    );
    assert!(registry.states().is_empty() && player.does.sets.load(Ordering::SeqCst) == 0, "nothing was opened for it");
    let first = registry.open_for(anna, &costs(40), 0).unwrap();
    // The budget counts on all rings of the device and for every direction.
    let _second = registry.open_for(anna, &CaptureRequest { direction: Direction::Out, ..costs(20) }, 1).unwrap();
    let third = registry.open_for(anna, &CaptureRequest { sample: 2, by: By::PacketSocket, ..costs(5) }, 0).unwrap();
    assert!(refused(anna, &costs(1)).contains("75 of the 75"));
    assert!(refused(anna, &CaptureRequest { sample: 2, ..capture_request() }).contains("it costs 10 more"));
    assert!(registry.open_for(anna, &capture_request(), 0).is_ok(), "who wants all packets takes nothing");
    // Other users have the rest.
    assert!(
        refused(bert, &costs(26))
            .contains("the expressions of all readers on `played0` cost each packet 75 of the 100")
    );
    let other = registry.open_for(bert, &costs(20), 0).unwrap();
    assert_eq!(registry.budget(1, root).map(|budget| (budget.user.taken, budget.all.taken)), Some((0, 95)));
    assert!(registry.open_for(root, &costs(5), 0).is_ok());
    // A refused change leaves the old expression in force.
    for _ in 0..3 {
        assert_eq!(registry.exchange(first.granted.id, &first_bytes(41)).unwrap_err().kind, CaptureErrorKind::Cannot);
        assert_eq!(registry.exchange(third.granted.id, &first_bytes(6)).unwrap_err().kind, CaptureErrorKind::Cannot);
    }
    let mut reader = CaptureReader::new(first, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..8);
    assert_eq!(take(&mut reader), [1, 2, 3, 5, 6, 7]);
    // A reader's own expression makes room for its successor; one of a reader that went makes room for all.
    assert!(
        registry.exchange(reader.id(), &first_bytes(40)).is_ok()
            && registry.exchange(reader.id(), &first_bytes(10)).is_ok()
    );
    assert!(registry.open_for(anna, &costs(30), 0).is_ok());
    drop((third, other));
    until(|| registry.budget(1, anna).is_some_and(|budget| budget.all.taken == 30), "those that went take nothing");
    assert_eq!(registry.budget(2, anna).map(|budget| budget.all.taken), Some(0), "of another device");
}

#[test]
fn beyond_the_budget_a_reader_gets_what_it_may_see_and_never_more() {
    let (player, registry) = player();
    registry.limit(100);
    let permission = shown(5, "3");
    let dear = CaptureRequest { program: first_bytes(80), ..capture_request() };
    assert_eq!(registry.open_for(1000, &dear, permission.clone()).unwrap_err().kind, CaptureErrorKind::Cannot);
    let all = registry.open_for(1000, &capture_request(), permission.clone()).unwrap();
    let lies = lies_in(&all);
    assert_eq!(player.does.blocks.load(Ordering::SeqCst), 1, "the policy's own filter is asked where packets are");
    assert_eq!(registry.exchange(all.granted.id, &dear.program).unwrap_err().kind, CaptureErrorKind::Cannot);
    let mut all = CaptureReader::new(all, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..40);
    assert_eq!((take(&mut all), lies()), ((0..40).filter(|n| n % 4 == 3).collect(), vec![3]));
    // The policy's part of an expression costs users nothing.
    assert_eq!(registry.budget(1, 1000).map(|budget| budget.all.taken), Some(0));
    // If the kernel cannot choose the packets to take away, the reader is refused.
    let taking = CaptureRequest { mode: Mode::Consume, ..dear };
    let refused = registry.open_for(1000, &taking, permission).unwrap_err();
    assert!(
        refused.kind == CaptureErrorKind::System && refused.text.contains("cannot choose what is taken away"),
        "{refused}"
    );
}

#[test]
fn devices_that_cannot_be_asked_what_is_shown_are_refused() {
    let (player, registry) = player();
    let alive = Arc::strong_count(&player.alive);
    for (device, why) in
        [("bare0", "there is no first byte"), ("odd0", "a policy has no expressions for link type 104")]
    {
        let asked = CaptureRequest { device: device.into(), ..capture_request() };
        assert!(registry.open(&asked, 1).is_ok(), "who is shown everything may");
        for refused in [
            registry.open(&asked, shown(5, "3")).unwrap_err(),
            registry.open(&CaptureRequest { mode: Mode::Consume, ..asked.clone() }, shown(5, "3")).unwrap_err(),
            registry.keep(device, By::WhatIsBest, 1 << 20, shown(5, "3")).unwrap_err(),
        ] {
            let begins = format!("the daemon's policy shows of `{device}` only what `3` passes, which cannot be asked");
            assert_eq!(refused.kind, CaptureErrorKind::Denied);
            assert!(refused.text.starts_with(&begins) && refused.text.ends_with(why), "{refused}");
        }
        until(|| registry.states().is_empty() && Arc::strong_count(&player.alive) == alive, "nothing is left");
    }
}
