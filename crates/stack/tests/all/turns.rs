//! Turns: a reliable protocol that acknowledges and retransmits fits between the application and `udp`.

use std::collections::VecDeque;

use stack::{Block, Delivery, Description, Discard, Incoming, Meta, NoEnv, Out, Outgoing, SendError, Stack, Step};

use crate::support::*;

const DATA: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;
const RETRY_NS: u64 = 200;

/// Stop and wait: sends one payload at a time, again and again until acknowledged. Its header is kind and number.
#[derive(Default)]
struct StopAndWait {
    number: u8,
    /// The unacknowledged payload, and when to send it.
    waiting: Option<(Vec<u8>, u64)>,
    expected: u8,
    /// The number to acknowledge in the next turn; `arrived` holds the payloads to deliver.
    acknowledge: Option<u8>,
    arrived: VecDeque<(Meta, Vec<u8>)>,
}

impl Block for StopAndWait {
    fn name(&self) -> &'static str {
        "stop-and-wait"
    }

    fn header_bytes(&self) -> usize {
        2
    }

    fn down(&mut self, now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        if self.waiting.is_some() {
            return Err(SendError::Full);
        }
        self.waiting = Some((packet.payload().to_vec(), now));
        Ok(Step::Keep)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let [kind, number] = *packet.bytes().first_chunk().ok_or(Discard::UdpTruncated)?;
        if kind == ACKNOWLEDGEMENT {
            if number == self.number && self.waiting.take().is_some() {
                self.number = self.number.wrapping_add(1);
            }
            return Ok(Step::Keep);
        }
        self.acknowledge = Some(number);
        if number == self.expected {
            self.expected = self.expected.wrapping_add(1);
            self.arrived.push_back((packet.meta, packet.bytes()[2..].to_vec()));
        }
        Ok(Step::Keep)
    }

    fn next(&self) -> Option<u64> {
        let at_once = (self.acknowledge.is_some() || !self.arrived.is_empty()).then_some(0);
        at_once.or(self.waiting.as_ref().map(|(_, time)| *time))
    }

    fn tend(&mut self, now: u64, out: &mut dyn Out) {
        if let Some(number) = self.acknowledge.take() {
            out.emit(Meta::default(), &[ACKNOWLEDGEMENT, number], &[]).unwrap();
        }
        while let Some((meta, bytes)) = self.arrived.pop_front() {
            out.deliver(meta, &bytes).unwrap();
        }
        if let Some((payload, time)) = &mut self.waiting
            && *time <= now
        {
            *time = now + RETRY_NS;
            out.emit(Meta::default(), &[DATA, self.number], payload).unwrap();
        }
    }
}

fn reliable(text: &str, host: usize) -> Stack {
    let below = Description::parse(text).unwrap().build_blocks(&facts(host), &mut NoEnv).unwrap();
    let mut blocks: Vec<Box<dyn Block>> = vec![Box::new(StopAndWait::default())];
    blocks.extend(below);
    Stack::of_blocks(blocks)
}

/// What `stack` sends and delivers in a turn, after the driver's part.
fn turn(stack: &mut Stack, now: u64, to: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut frames, mut deliveries) = (Vec::new(), Vec::new());
    stack.tend(
        now,
        &mut |header: &[u8], payload: &[u8]| frames.push(to_station([header, payload].concat(), MACS[to])),
        &mut |delivery: Delivery<'_>| deliveries.push(delivery.payload.to_vec()),
    );
    (frames, deliveries)
}

#[test]
fn a_protocol_that_sends_again_gets_everything_through_a_wire_that_loses() {
    let mut hosts = [reliable("udp 4000 to=10.0.0.2:53 | dummy", 0), reliable("dummy | udp 53 to=10.0.0.1:4000", 1)];
    assert_eq!(hosts[0].header_bytes(), 44);
    let payloads: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number; usize::from(number)]).collect();
    let (mut now, mut next, mut frame_count) = (0, 0, 0);
    let mut arrived = Vec::new();
    for _ in 0..1_000 {
        if let Some(payload) = payloads.get(next) {
            let outcome = hosts[0].send(now, None, payload, &mut |_, _| panic!("it sends in its turn"));
            match outcome {
                Ok(()) => next += 1,
                Err(error) => assert_eq!(error, SendError::Full),
            }
        }
        now = hosts.iter().filter_map(Stack::next).min().unwrap_or(now).max(now);
        for host in [0, 1] {
            let (frames, deliveries) = turn(&mut hosts[host], now, 1 - host);
            arrived.extend(deliveries);
            for frame in frames {
                frame_count += 1;
                // Two of five frames are lost, including acknowledgements.
                if frame_count % 5 > 1 {
                    hosts[1 - host].receive(now, &frame, &mut |_| panic!("it delivers in its turn")).unwrap();
                }
            }
        }
    }
    assert_eq!(arrived, payloads);
    assert!(now > 10 * RETRY_NS, "frames were lost, and time passed");
}

/// Always wants a turn, in which it delivers a byte and sends a packet with a larger header than announced.
struct Restless {
    turn_count: usize,
}

impl Block for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn header_bytes(&self) -> usize {
        1
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        packet.push::<2>().map(|header| *header = [0; 2])?;
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, _packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        Ok(Step::Pass)
    }

    fn next(&self) -> Option<u64> {
        Some(7)
    }

    fn tend(&mut self, _now: u64, out: &mut dyn Out) {
        self.turn_count += 1;
        // The header room is that of the whole stack: 8 bytes for `udp` and 1 for this block.
        assert_eq!(out.emit(Meta::default(), &[0; 10], &[]), Err(SendError::HeaderRoom));
        let discarded = out.deliver(Meta::default(), &[9]);
        assert_eq!(discarded, Err(Discard::OtherProtocol));
    }
}

#[test]
fn a_block_that_never_rests_cannot_hold_the_caller() {
    let mut blocks = Description::parse("udp 53").unwrap().build_blocks(&facts(0), &mut NoEnv).unwrap();
    blocks.truncate(1);
    blocks.push(Box::new(Restless { turn_count: 0 }));
    let mut stack = Stack::of_blocks(blocks);
    assert_eq!(stack.next(), Some(7));
    turn(&mut stack, 6, 1);
    assert_eq!(discards(&stack), []);
    turn(&mut stack, 7, 1);
    // Four turns; `udp` discarded the delivery of each.
    assert_eq!(discards(&stack), [("another transport protocol", 4)]);
    assert_eq!(stack.next(), Some(7));
}

#[test]
fn a_block_with_more_header_than_it_announced_is_refused() {
    let mut stack = Stack::of_blocks(vec![Box::new(Restless { turn_count: 0 })]);
    assert_eq!(stack.send(0, None, b"x", &mut |_, _| panic!("not sent")), Err(SendError::HeaderRoom));
}
