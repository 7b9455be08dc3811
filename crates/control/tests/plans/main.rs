//! The control plane with kinds that exist only here: texts become plans, and plans are carried out or fail.

mod kinds;
mod planning;
mod transactions;
