/** All states of a session that a few steps can lead to. */
import { describeSurvey } from "../session/survey.js";

describeSurvey();
