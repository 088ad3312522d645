//! The wire protocol, spoken to a real instance: what PostgreSQL's clients rely on, and what broken
//! or hostile clients send.

mod contact;
mod function_calls;
mod hostile;
mod literals;
mod positions;
mod prepared;
mod protocol;
mod transactions;
