import { createReciproc } from "reciproc/react";
import type { ClientApi, ServerApi } from "../api.js";

export const { Provider, usePeer, useStatus, useNotification, useHandler, useStream, useTopicMembers } = createReciproc<
  ServerApi,
  ClientApi
>();
