//! Common parts of the ears of rules: exchanges of a conversation become transactions, facts become buffers.

use super::transactions::Transactions;
use base::limits::{RULES_TRANSACTIONS, TALK_ITEMS};
use protocols::conversation::{About, Side};
use rules::Transaction;
use rules::names::{App, Buffer, Number, numbers_of_facts, of_facts};
use std::collections::VecDeque;

/// Most facts of a protocol.
const FACTS: usize = 48;

/// The names of a protocol's facts, by number and side.
#[derive(Debug)]
pub(super) struct Names {
    pub facts: &'static [About],
    pub buffers: [[Option<Buffer>; 2]; FACTS],
    pub numbers: [[Option<Number>; 2]; FACTS],
}

impl Names {
    pub const fn new(facts: &'static [About]) -> Names {
        Names { facts, buffers: of_facts(facts), numbers: numbers_of_facts(facts) }
    }

    /// Adds a text for rules, or for alerts alone.
    pub fn put(&self, one: &mut Transaction, fact: usize, to_server: bool, value: &[u8]) {
        match self.buffers[fact][usize::from(!to_server)] {
            Some(buffer) => one.put_copy(buffer, to_server, value),
            None => self.put_unnamed(one, fact, to_server, value),
        }
    }

    /// Adds a number for rules, unless the side has it already, or for alerts alone.
    pub fn put_number(&self, one: &mut Transaction, fact: usize, to_server: bool, value: u64) {
        match self.numbers[fact][usize::from(!to_server)] {
            Some(number) => one.put_number_once(number, to_server, value),
            None => self.put_unnamed(one, fact, to_server, &value.to_be_bytes()),
        }
    }

    /// The texts of a fact that a side said.
    pub fn texts<'a>(&self, one: &'a Transaction, fact: usize, side: Side) -> Vec<&'a [u8]> {
        match self.buffers[fact][side.index()] {
            Some(buffer) => one.all(buffer, side.is_client()).collect(),
            None => one.facts(fact, side.is_client()).collect(),
        }
    }

    /// The numbers of a fact that a side said.
    pub fn numbers(&self, one: &Transaction, fact: usize, side: Side) -> Vec<u64> {
        match self.numbers[fact][side.index()] {
            Some(number) => one.numbers(number, side.is_client()).collect(),
            None => {
                one.facts(fact, side.is_client()).filter_map(|it| it.try_into().ok()).map(u64::from_be_bytes).collect()
            }
        }
    }

    fn put_unnamed(&self, one: &mut Transaction, fact: usize, to_server: bool, value: &[u8]) {
        let About { field, kind, .. } = &self.facts[fact];
        let most = if kind.is_item() { TALK_ITEMS } else { 1 };
        if !field[usize::from(!to_server)].is_empty() && one.facts(fact, to_server).count() < most {
            one.put_fact(fact, to_server, value);
        }
    }
}

/// The transactions of the last exchanges, oldest first: exchange, and transaction.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    last: VecDeque<(u64, u64)>,
}

impl Exchanges {
    /// The transaction of an exchange, unless it is complete and was shown.
    pub fn find(&self, exchange: u64, to: &Transactions) -> Option<u64> {
        let known = self.last.iter().rfind(|known| known.0 == exchange)?;
        to.find(known.1).map(|one| one.id)
    }

    /// The transaction of an exchange. Begins it if there is none.
    pub fn transaction(&mut self, exchange: u64, app: App, to: &mut Transactions) -> u64 {
        if let Some(id) = self.find(exchange, to) {
            return id;
        }
        let id = to.begin(app).id;
        if self.last.len() == RULES_TRANSACTIONS {
            let gone = self.last.iter().position(|known| to.find(known.1).is_none());
            self.last.remove(gone.unwrap_or(0));
        }
        self.last.push_back((exchange, id));
        id
    }
}
