//! Clients that are let in, and clients that are not: roles, passwords, TLS, with real clients and
//! byte by byte.

mod certificates;
mod fuzz;
mod passwords;
mod roles;
mod secure;
mod tls;
