//! Common parts of the ears of rules: exchanges of a conversation become transactions, facts become buffers.

use super::transactions::Transactions;
use base::limits::RULES_TRANSACTIONS;
use rules::names::{App, Buffer};
use std::collections::VecDeque;

/// The buffers of a protocol's facts, by the number of the fact, from its client and its server.
pub(super) type Buffers<const N: usize> = [[Option<Buffer>; 2]; N];

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
            self.last.pop_front();
        }
        self.last.push_back((exchange, id));
        id
    }
}
