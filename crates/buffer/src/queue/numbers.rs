//! Queues of numbers of either design: [`credit`](super::credit) uses them for full and for free places.

use super::{Misfit, Pop, PopError, Push, fast_forward, indexed};

/// The design of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// [`indexed`].
    #[default]
    Indexed,
    /// [`fast_forward`].
    FastForward,
}

impl Queue {
    /// The names in `set queue=`.
    pub const WORDS: [&'static str; 2] = ["indexed", "ff"];

    /// The design with this name.
    pub fn of(word: &str) -> Option<Queue> {
        [Queue::Indexed, Queue::FastForward]
            .into_iter()
            .zip(Queue::WORDS)
            .find(|(_, name)| *name == word)
            .map(|(one, _)| one)
    }
}

pub(super) enum Pushes {
    Indexed(indexed::Sender<u64>),
    FastForward(fast_forward::Sender<u64>),
}

pub(super) enum Pops {
    Indexed(indexed::Receiver<u64>),
    FastForward(fast_forward::Receiver<u64>),
}

pub(super) fn numbers(queue: Queue, places: usize) -> Result<(Pushes, Pops), Misfit> {
    Ok(match queue {
        Queue::Indexed => {
            let (sender, receiver) = indexed::queue(places)?;
            (Pushes::Indexed(sender), Pops::Indexed(receiver))
        }
        Queue::FastForward => {
            let (sender, receiver) = fast_forward::queue(places)?;
            (Pushes::FastForward(sender), Pops::FastForward(receiver))
        }
    })
}

impl Pushes {
    /// Adds a number. If the receiver has gone, the number is lost.
    pub(super) fn push(&mut self, number: u64) {
        let _ = match self {
            Pushes::Indexed(sender) => sender.push(number),
            Pushes::FastForward(sender) => sender.push(number),
        };
    }
}

impl Pops {
    pub(super) fn pop(&mut self) -> Result<u64, PopError> {
        match self {
            Pops::Indexed(receiver) => receiver.pop(),
            Pops::FastForward(receiver) => receiver.pop(),
        }
    }

    /// Whether a pop would find a number, or the end.
    pub(super) fn is_ready(&mut self) -> bool {
        match self {
            Pops::Indexed(receiver) => receiver.is_ready(),
            Pops::FastForward(receiver) => receiver.is_ready(),
        }
    }
}
