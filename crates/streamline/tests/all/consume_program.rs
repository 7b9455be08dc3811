//! An expression in the kernel chooses what is taken away from the host. It can be exchanged while frames come: each
//! frame still arrives once, here or at the host.

use driver::af_packet::{self, Direction};
use driver::af_xdp::{Attach, Device, Options, Program};
use driver::link::XdpMode;
use driver::{Receive, Turn};
use kernel::{ConsumeProgram, Wanted};
use program::cbpf::Instruction;
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

const PATIENCE: Duration = Duration::from_secs(20);

/// Passes frames whose byte 20 modulo 4 is `rest`.
fn rest(rest: u32) -> program::Program {
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let program = [at(0x30, 0, 0, 20), at(0x54, 0, 0, 3), at(0x15, 0, 1, rest), at(6, 0, 0, 1), at(6, 0, 0, 0)];
    program::from_cbpf(&program).unwrap()
}

fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[20] = number as u8;
    frame[24..28].copy_from_slice(&number.to_be_bytes());
    frame
}

fn receive(receiver: &mut dyn Receive, numbers: &mut Vec<u32>) {
    let mut more = true;
    while more {
        let turn = receiver.receive(Duration::ZERO, &mut |batch| {
            let number = |frame: &driver::Frame<'_>| frame.bytes_without_tag()[24..28].try_into().unwrap();
            numbers.extend(batch.frames.iter().map(number).map(u32::from_be_bytes));
        });
        more = matches!(turn.unwrap(), Turn::Frames(_));
    }
}

#[test]
fn what_is_wanted_is_taken_and_the_rest_is_the_hosts_while_programs_are_exchanged() {
    if !may_make_networks() {
        return;
    }
    const FRAMES: u32 = 20_000;
    // A quarter of the frames is wanted at any time. There is room for all of those, however long an exchange takes.
    for (attach, mode) in [(Attach::Native, XdpMode::Native), (Attach::Generic, XdpMode::Generic)] {
        let pair = Pair::new();
        let namespace = pair.near.namespace.clone();
        let consumes = namespace.enter(|| ConsumeProgram::new(1, Wanted::Any(&[&rest(0)])));
        let first = match consumes.unwrap() {
            Ok(consume_program) => consume_program,
            Err(error) => return println!("skipped (rights): {error}"),
        };
        let second = first.with(Wanted::Any(&[&rest(1)])).unwrap();
        let (program, sockets) = (first.program().try_clone_to_owned(), first.sockets().try_clone_to_owned());
        let program = Some(Program { program: program.unwrap(), sockets: sockets.unwrap(), link: None });
        let options = af_packet::Options { direction: Direction::In, ..af_packet::Options::default() };
        let mut host = af_packet::Receiver::open(&namespace, "near", &options).unwrap();
        let mut device =
            Device::open(&namespace, "near", Options { attach, program, receive_chunks: 8192, ..Options::default() })
                .unwrap();
        assert_eq!(device.mode, mode);
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        let mut sender = pair.far.sender();
        let (end, mut exchanged) = (Instant::now() + PATIENCE, 0);
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || (0..FRAMES).for_each(|number| sender.send(&frame(number)).unwrap()));
            while !sending.is_finished() {
                exchanged += 1;
                let consume_program = if exchanged % 2 == 0 { &first } else { &second };
                device.exchange(consume_program.program()).unwrap();
                receive(&mut device.queues[0].receiver, &mut taken);
                receive(&mut host, &mut left);
            }
        });
        while taken.len() + left.len() < FRAMES as usize {
            assert!(Instant::now() < end, "{mode:?}: {} taken, {} left", taken.len(), left.len());
            receive(&mut device.queues[0].receiver, &mut taken);
            receive(&mut host, &mut left);
        }
        let counted = first.counted();
        assert_eq!((counted.wanted, counted.left), (taken.len() as u64, left.len() as u64), "{mode:?}");
        assert!(taken.iter().all(|number| number % 4 < 2), "either wanted all that were taken");
        assert!((0..FRAMES).filter(|number| number % 4 > 1).all(|number| left.binary_search(&number).is_ok()));
        let mut all = [taken.clone(), left].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..FRAMES), "{mode:?}: each has one end");
        for wanted in [0, 1] {
            assert!(
                exchanged < 4 || taken.iter().any(|number| number % 4 == wanted),
                "{mode:?}, {exchanged} exchanges"
            );
        }
    }
}
