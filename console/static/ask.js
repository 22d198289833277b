/** Changes: each is a POST, from this page only. */

/** What went wrong, in the console's words. */
export class Refused extends Error {}

/** @param {string} address @returns {Promise<any>} what it answers */
export async function get(address) {
  let answer;
  try {
    answer = await fetch(address);
  } catch {
    throw new Refused("the console does not answer");
  }
  if (!answer.ok) throw new Refused((await answer.text()).trim());
  return answer.json();
}

/** @param {string} address @param {any} [body] sent as JSON @returns {Promise<any>} the answer, if it has one */
export async function post(address, body) {
  let answer;
  try {
    answer = await fetch(address, {
      method: "POST",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused("the console does not answer");
  }
  if (!answer.ok) throw new Refused((await answer.text()).trim());
  return answer.status === 204 ? null : answer.json();
}
