/** Returns the picture of the rooms as SVG: a room is above those that it imports. */
export function picture(): Promise<string>;
