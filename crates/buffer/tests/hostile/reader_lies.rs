//! A reader whose page may hold anything. Its position goes backwards, far ahead, or changes all the time, and so do
//! its wait word, its bell and its stamps. The writer goes on, and no other reader loses anything by it.

use crate::maps::{self, Dice, Until, Victim};
use buffer::Descriptor;
use buffer::ring::memory::Geometry;
use buffer::ring::{From, NotWritten, OnFull, Reader, Ring, RingKind, Signalling};
use buffer::shared::segment::Pages;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn read(reader: &mut Reader, wanted: usize) -> Option<Vec<u8>> {
    let seen = reader.peek().ok()?;
    let seen = reader.first(seen, wanted as u32);
    let bytes = reader.bytes(&seen).copy_to_vec();
    reader.take(&seen).ok().map(|()| bytes)
}

fn lie(page: &Victim, how: u64, dice: &mut Dice) {
    match how {
        0 => page.word(0).store(0, Ordering::Release),
        1 => page.word(0).store(u64::MAX, Ordering::Release),
        2 => page.word(0).store(dice.roll() >> (dice.roll() % 64), Ordering::Release),
        _ => (0..32).for_each(|word| {
            let value = dice.roll();
            page.word(word).store([0, u64::MAX, value, value >> (value % 64)][(value % 4) as usize], Ordering::Release);
        }),
    }
}

fn check(kind: RingKind, contract: OnFull, how: u64) {
    let (mut ring, mut writer) =
        Ring::create(Geometry::new(kind, 4096, 16), Pages::Normal, Signalling::Batched(2)).unwrap();
    let hold = Some(Duration::from_millis(2));
    let _liar = ring.attach(contract, hold, From::Next).unwrap();
    let [page] = maps::writable("streamline-reader")[..] else { panic!("there is one page of a reader") };
    let mut honest: Vec<Reader> = [OnFull::Wait, OnFull::DropNewest, OnFull::Overwrite]
        .map(|it| ring.attach(it, None, From::Next).unwrap())
        .into();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _until = Until(&done);
        scope.spawn(|| {
            let mut dice = Dice(0x1a5 + how);
            while !done.load(Ordering::Relaxed) {
                lie(&page, how, &mut dice);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut n = 0u64;
        while n < 300 {
            assert!(Instant::now() < deadline, "{kind:?} {contract:?}: a lie ({how}) stops the writer");
            let block = vec![n as u8; 1 + (n * 37 % 200) as usize];
            let soon = Some(Instant::now() + Duration::from_millis(1));
            match writer.write(Descriptor { time: n, ..Descriptor::default() }, &block, soon) {
                Ok(()) => n += 1,
                Err(refused) => {
                    assert!(contract.holds(), "{kind:?} {contract:?}: who holds nothing holds ({how}): {refused}");
                    assert!(contract == OnFull::DropNewest || refused == NotWritten::WouldBlock);
                    continue;
                }
            }
            for reader in &mut honest {
                assert_eq!(read(reader, block.len()), Some(block.clone()), "{kind:?} {contract:?}: {reader:?}");
                reader.tell();
                assert_eq!(reader.counters().lost, 0);
            }
        }
    });
}

#[test]
fn a_reader_that_lies_stops_nobody() {
    let _alone = maps::alone();
    for kind in RingKind::ALL {
        for contract in OnFull::ALL {
            (0..4).for_each(|how| check(kind, contract, how));
        }
    }
}
