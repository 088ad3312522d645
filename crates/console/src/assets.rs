//! The files of the pages, which the program has in it.

use crate::http::Response;

/// A path, its kind and its content.
const FILES: &[(&str, &str, &str)] = &[
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../assets/index.html"),
    ),
    (
        "/console.css",
        "text/css; charset=utf-8",
        include_str!("../assets/console.css"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("../assets/icon.svg"),
    ),
    (
        "/console.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/console.js"),
    ),
    (
        "/chart.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/chart.js"),
    ),
    (
        "/dom.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/dom.js"),
    ),
    (
        "/pages.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/pages.js"),
    ),
    (
        "/parts.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/parts.js"),
    ),
    (
        "/activity.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/activity.js"),
    ),
    (
        "/statements.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/statements.js"),
    ),
    (
        "/sessions.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/sessions.js"),
    ),
    (
        "/instances.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/instances.js"),
    ),
];

/// A file by its path.
pub fn find(path: &str) -> Option<Response> {
    let (_, kind, content) = FILES.iter().find(|(p, ..)| *p == path)?;
    Some(Response::new("200 OK", kind, *content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that needs another host, a style or a script within its text would be broken by the
    /// policy that responses carry.
    #[test]
    fn files_load_nothing_from_elsewhere() {
        for (path, _, content) in FILES {
            let foreign = content.replace("http://www.w3.org/", "");
            for part in [
                "http://",
                "https://",
                "style=\"",
                " onclick=",
                "eval(",
                "innerHTML",
            ] {
                assert!(!foreign.contains(part), "{path}: {part}");
            }
        }
        let (_, _, index) = FILES[0];
        for part in index.split("src=\"").chain(index.split("href=\"")).skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            let is_known = name.starts_with('#') || find(name).is_some();
            assert!(is_known || part.starts_with('<'), "{name}");
        }
    }
}
