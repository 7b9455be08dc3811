//! The control plane over kinds that exist only here: from texts to plans, and plans carried out or not.

mod kinds;
mod planning;
mod transactions;
