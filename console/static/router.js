/** All state of the page is in its address: what is shown, sorted, filtered. A link to it shows the same. */
import { useEffect, useState } from "./vendor/hooks.js";

/** A part of a path. An address may be malformed. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Parses the current address. @returns {{path: string[], query: URLSearchParams}} */
function here() {
  const path = location.pathname.split("/").filter(Boolean).map(decoded);
  return { path, query: new URLSearchParams(location.search) };
}

const listeners = new Set();
const tell = () => listeners.forEach((listener) => listener());

/** Goes to an address of this page. @param {string} address @param {boolean} [instead] of the present one */
export function go(address, instead = false) {
  history[instead ? "replaceState" : "pushState"](null, "", address);
  tell();
}

/** The present address with other parameters; `null` takes one away. @param {Record<string, string|null>} changes */
export function withParameters(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  return location.pathname + (text ? `?${text}` : "");
}

/** The address of a view, which keeps what holds for all of them. @param {...(string|number)} parts of its path */
export function to(...parts) {
  const theme = new URLSearchParams(location.search).get("theme");
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}${theme ? `?theme=${theme}` : ""}`;
}

/** Follows links within the page without reloading it. */
export function followLinks() {
  addEventListener("popstate", tell);
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
    const address = link.getAttribute("href");
    if (!address.startsWith("/") || link.hasAttribute("download")) return;
    event.preventDefault();
    go(address);
    if (!address.includes("sort=") && !address.includes("as=")) scrollTo(0, 0);
  });
}

/** The current address; components that use it are rendered again when it changes. */
export function useAddress() {
  const [address, setAddress] = useState(here);
  useEffect(() => {
    const listener = () => setAddress(here());
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return address;
}
