//! Seeds and sizes of randomized tests.

/// The number in an environment variable, or `default` if the variable is not set.
pub fn number(name: &str, default: u64) -> u64 {
    given(name).unwrap_or(default)
}

/// The number in an environment variable, if it is set.
pub fn given(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let parsed = value.parse();
    Some(parsed.unwrap_or_else(|e| panic!("{name}={value} is not a number: {e}")))
}

/// The seed of a test: the one in the environment variable `name`, or the time. It is printed, so
/// that a failure can be replayed.
pub fn seed(name: &str) -> u64 {
    seed_or(name, from_clock())
}

/// The seed of a test: the one in the environment variable `name`, or `default`. It is printed.
pub fn seed_or(name: &str, default: u64) -> u64 {
    let seed = number(name, default);
    eprintln!("{name}={seed}");
    seed
}

/// The seeds that a test goes through: only the one in the environment variable `name`, or all of
/// `default`. Each is printed when its turn comes, so the last one printed is the one that failed.
pub fn seeds(name: &str, default: impl IntoIterator<Item = u64>) -> impl Iterator<Item = u64> {
    let given = given(name);
    let default = default.into_iter().filter(move |_| given.is_none());
    let name = name.to_string();
    given
        .into_iter()
        .chain(default)
        .inspect(move |seed| eprintln!("{name}={seed}"))
}

fn from_clock() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970");
    since.as_nanos() as u64
}
