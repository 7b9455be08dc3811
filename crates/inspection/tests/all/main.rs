//! What alerts say, beside what the records of filters say.

mod agreement;
