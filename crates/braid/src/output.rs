//! Output for the person at the terminal. `println!` panics when nobody reads any more, as behind
//! `| head`. An instance must not end by that, nor may `verify` lose its exit code. So these macros
//! ignore the error: nobody is there who could be told.

/// Prints a line on standard output, if somebody reads it.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($what)*);
    }};
}

/// Prints a line on standard error, if somebody reads it.
macro_rules! complain {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($what)*);
    }};
}
